"""opdiff forms: planted faults in every form, one finding for a fault seen a thousand times, conditions that do not hold,
backends that cannot run a side."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from support import CANNOT_RUN, CLEAN, DEFECT, OPDIFF, Tally


def opdiff(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([OPDIFF, "forms", *arguments], capture_output=True, text=True, timeout=1800)


def names() -> list[str]:
    return [line.split()[0] for line in opdiff().stdout.splitlines()]


def operators(form: str) -> list[str]:
    """Of the first side, in order."""
    listing = opdiff("show", form).stdout
    sides = re.split(r"^  (?=\S)", listing[listing.index("\nwith "):], flags=re.M)
    return re.findall(r"^    \S+: (?:[a-z.]+:)?([A-Za-z]+)\(", sides[1], flags=re.M)


def check(folder: pathlib.Path, *arguments: str) -> tuple[subprocess.CompletedProcess, dict]:
    out = folder / "forms.json"
    out.unlink(missing_ok=True)
    run = opdiff("check", *arguments, "--no-time", "--json", str(out))
    return run, json.loads(out.read_text()) if out.exists() else {}


def main() -> int:
    tally = Tally("forms")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for form in names():
            # The last operator that computes: moved data would be a fault of every operator after it, too.
            moved = {"Reshape", "Transpose", "Slice", "Concat", "Pad", "Identity", "Cast", "Squeeze", "Unsqueeze"}
            computing = [op for op in operators(form) if op not in moved] or operators(form)
            spec = f"faulty:base=reference,op={computing[-1]},fault=scale,size=5"
            run, result = check(folder, form, "--backends", spec, "--direction", "forward", "--cases", "4")
            blamed = [finding["op"] for finding in result.get("findings", [])]
            tally.case(
                f"{form}: {computing[-1]} scaled",
                ([] if run.returncode == DEFECT else [f"status {run.returncode}: {run.stderr[-300:]}"])
                + ([] if computing[-1] in blamed else [f"blamed: {blamed}"]),
            )
        run, result = check(folder, "conv-relu", "--backends", "faulty:base=reference,op=Conv,fault=offset,size=1",
                            "--direction", "forward", "--cases", "1000", "--bundle", "50")
        counts = [(f["op"], f["count"], f["pattern"]) for f in result.get("findings", [])]
        tally.case("a fault seen 1,000 times", [] if counts == [("Conv", 1000, "shifted")] else [f"findings: {counts}"])

        for form, setting, word in [("conv-as-winograd", "stride=2", "stride"), ("conv-1x1-as-product", "kernel=3", "kernel"),
                                    ("conv-bn", "colour=3", "colour"), ("conv-bn", "kernel=many", "NAME=NUMBER")]:
            run = opdiff("check", form, "--set", setting)
            tally.case(
                f"{form} --set {setting} is refused",
                ([] if run.returncode == CANNOT_RUN else [f"status {run.returncode}"])
                + ([] if word in run.stderr else [run.stderr[-300:]]),
            )
        run = opdiff("check", "no-such-form")
        tally.case("an unknown form", [] if run.returncode == CANNOT_RUN and "no-such-form" in run.stderr else [run.stderr])

        run, result = check(folder, "conv-as-unfold-einsum", "--backends", "onednn", "--direction", "forward", "--cases", "2")
        verdicts = {row["side"]: row["verdict"] for row in result.get("rows", [])}
        tally.case(
            "a side that onednn cannot run is said to be unsupported",
            ([] if run.returncode == CLEAN else [f"status {run.returncode}: {run.stderr[-300:]}"])
            + ([] if verdicts.get("pad + unfold + einsum") == "unsupported" else [str(verdicts)]),
        )
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
