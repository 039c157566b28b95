#!/usr/bin/env python3
"""`opdiff train` learns, resumes bit for bit after kill -9, keeps its checkpoint, proves its steps, says what is wrong."""

import contextlib
import gzip
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from support import CANNOT_RUN, CLEAN, DEFECT, OPDIFF, ROOT, Tally, is_there

INITIAL = ROOT / "examples" / "residual-digits" / "residual_initial.onnx"
LENET = ROOT / "examples" / "lenet5" / "lenet5_initial.onnx"


def idx(path: pathlib.Path, shape: list[int], values: bytes) -> None:
    path.write_bytes(struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape) + values)


def data(folder: pathlib.Path, samples: int = 200, size: int = 8) -> None:
    """Ten classes that a small network tells apart: a bright bar whose place is the class, in noise."""
    draw = random.Random(1)
    for part, count in (("train", samples), ("test", 60)):
        labels = [draw.randrange(10) for _ in range(count)]
        pixels = bytearray()
        for label in labels:
            for y in range(size):
                for x in range(size):
                    pixels.append(
                        min(255, draw.randrange(60) + 190 * ((x * 10 // size + 3 * (y > size // 2)) % 10 == label))
                    )
        idx(folder / f"{part}-images", [count, size, size], bytes(pixels))
        idx(folder / f"{part}-labels", [count], bytes(labels))


def recipe(folder: pathlib.Path, **changes) -> pathlib.Path:
    values = {
        "model": f'"{INITIAL}"',
        "loss": '"cross-entropy"',
        "optimiser": '"adam:lr=1e-2"',
        "batch": "16",
        "epochs": "2",
        "backend": '"reference"',
        **changes,
    }
    tail = values.pop("tail", "")
    lines = [f"{key} = {value}" for key, value in values.items() if value is not None]
    sources = [
        'train = { images = "train-images", labels = "train-labels" }',
        'test = { images = "test-images", labels = "test-labels" }',
    ]
    path = folder / "recipe.toml"
    path.write_text(
        "\n".join([*lines, "[data]", *sources, "[transform]", "mean = 0.2", "deviation = 0.3", tail]) + "\n"
    )
    return path


def train(folder: pathlib.Path, *arguments, out: str = "out", timeout: float = 600, environment=None):
    return subprocess.run(
        [OPDIFF, "train", str(folder / "recipe.toml"), "--out", str(folder / out), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "NO_COLOR": "1", **(environment or {})},
    )


def state(folder: pathlib.Path) -> bytes:
    """All that must be the same after a resume."""
    [archive] = folder.glob("checkpoint-*.npz")
    return archive.read_bytes() + (folder / "trained.onnx").read_bytes() + (folder / "curves.csv").read_bytes()


def children(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(pathlib.Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry))
    return found


def expect(done, status: int, *words: str) -> list[str]:
    faults = []
    if done.returncode != status:
        faults.append(
            f"status {done.returncode}, not {status}: {done.stderr.strip()[-500:]} {done.stdout.strip()[-300:]}"
        )
    text = done.stdout + done.stderr
    return faults + [f"{word!r} is not in: {text.strip()[-600:]}" for word in words if word not in text]


def learning(tally: Tally, folder: pathlib.Path) -> None:
    data(folder)
    recipe(folder, epochs="4")
    done = train(folder)
    faults = expect(done, CLEAN, "epoch 4/4", "test accuracy")
    for name in ("trained.onnx", "curves.csv", "checkpoint.json"):
        if not (folder / "out" / name).exists():
            faults.append(f"no {name}")
    with contextlib.suppress(ValueError, IndexError):
        losses = [float(line.split(",")[1]) for line in (folder / "out" / "curves.csv").read_text().splitlines()[1:]]
        if not sum(losses[-5:]) < 0.5 * sum(losses[:5]):
            faults.append(f"it does not learn: {losses[:5]} {losses[-5:]}")
    tally.case("learns on the reference", faults)
    again = expect(train(folder), CANNOT_RUN, "has a checkpoint of another training", "--resume")
    tally.case("does not overwrite another training", again)
    tally.case(
        "the trained model runs",
        expect(
            subprocess.run(
                [
                    OPDIFF,
                    "compare",
                    str(folder / "out" / "trained.onnx"),
                    "--dim",
                    "batch=2",
                    "--backends",
                    "reference",
                ],
                capture_output=True,
                text=True,
            ),
            CLEAN,
        ),
    )
    if shutil.which("gnuplot"):
        done = train(folder, "--plot-with", folder / "out" / "curves.csv", "--steps", "20", out="second")
        faults = expect(done, CLEAN)
        if "<svg" not in (folder / "second" / "curves.svg").read_text():
            faults.append("no plot")
        tally.case("two runs in one plot", faults)


def resuming(tally: Tally, folder: pathlib.Path, backend: str, extra: list[str]) -> None:
    data(folder)
    epochs = "3" if backend == "torch" else "20"
    recipe(folder, epochs=epochs, checkpoint_steps="5", tail="flip = 0.5")
    whole = train(folder, "--backend", backend, *extra, out="whole")
    faults = expect(whole, CLEAN)
    start = time.monotonic()
    kills = 0
    for attempt in range(30):
        process = subprocess.Popen(
            [
                OPDIFF,
                "train",
                str(folder / "recipe.toml"),
                "--out",
                str(folder / "cut"),
                "--resume",
                "--backend",
                backend,
                *extra,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + (
            120 if attempt > 4 else random.Random(attempt).uniform(0.3, 1.5) + (3 if backend != "reference" else 0)
        )
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL if attempt % 2 == 0 else signal.SIGTERM)
        kills += 1
        process.wait()
    if not faults and state(folder / "whole") != state(folder / "cut"):
        faults.append(f"not the same after {kills} ends")
    tally.case(
        f"{backend} {' '.join(extra)}: resumed after {kills} ends, the same bit for bit ({time.monotonic() - start:.0f} s)",
        faults,
    )
    done = train(folder, "--resume", "--backend", backend, out="whole")
    tally.case("nothing left to do is no error", expect(done, CLEAN))
    recipe(folder, epochs=epochs, batch="8")
    tally.case(
        "another batch is refused",
        expect(train(folder, "--resume", out="whole"), CANNOT_RUN, "was made with batch = 16"),
    )


def bad_input(tally: Tally, folder: pathlib.Path) -> None:
    data(folder)
    cases = {
        "unknown key": (dict(bacth="3"), ["recipe.toml", "unknown key 'bacth'"]),
        "wrong type": (dict(batch='"many"'), ["'batch' is \"many\""]),
        "missing model": (dict(model='"none.onnx"'), ["none.onnx"]),
        "unknown loss": (dict(loss='"hinge"'), ["no 'hinge'", "nll"]),
        "unknown option": (dict(optimiser='"adam:beta=1"'), ["no option 'beta'"]),
        "unknown backend": (dict(backend='"nonesuch"'), ["nonesuch"]),
        "binding of nothing": (dict(bind='["Convv=reference"]'), ["Convv=reference"]),
    }
    for name, (changes, words) in cases.items():
        recipe(folder, **changes)
        done = train(folder)
        faults = expect(done, CANNOT_RUN, *words)
        if len(done.stderr.splitlines()) != 1:
            faults.append(f"not one line: {done.stderr}")
        if (folder / "out" / "checkpoint.json").exists():
            faults.append("left a checkpoint")
        tally.case(name, faults)
    recipe(folder)
    (folder / "train-labels").rename(folder / "aside")
    tally.case("missing labels", expect(train(folder), CANNOT_RUN, "train-labels: no such file"))
    whole = (folder / "aside").read_bytes()
    (folder / "train-labels").write_bytes(whole[:-1])
    tally.case("truncated IDX", expect(train(folder), CANNOT_RUN, "train-labels: its header says"))
    (folder / "train-labels").unlink()
    (folder / "train-labels.gz").write_bytes(gzip.compress(whole)[:-20])
    tally.case("truncated gzip", expect(train(folder), CANNOT_RUN, "train-labels.gz: damaged or cut off"))
    (folder / "train-labels.gz").unlink()
    (folder / "train-labels").write_bytes(whole[:-1] + b"\x0b")
    tally.case("label outside the range", expect(train(folder), CANNOT_RUN, "is 11; the model has the classes 0 to 9"))
    (folder / "train-labels").write_bytes(whole)
    recipe(folder, optimiser='"sgd:lr=1e30"')
    done = train(folder)
    tally.case(
        "NaN loss",
        expect(done, CANNOT_RUN, "is not finite: the first operator to make one is", "so does the reference"),
    )
    recipe(folder, model=f'"{LENET}"')
    tally.case("images that do not fit", expect(train(folder, out="other"), CANNOT_RUN, "do not fit the model"))
    if is_there("onnxruntime"):
        recipe(folder, backend='"onnxruntime"')
        tally.case(
            "a backend without gradients",
            expect(train(folder, out="other"), CANNOT_RUN, "'onnxruntime' computes no gradients"),
        )
        recipe(folder, epochs="1")
        done = train(folder, "--backend", "onnxruntime", "--fallback", "reference", "--steps", "2", out="fallen")
        tally.case("... with --fallback reference", expect(done, CLEAN, "fell back to the reference"))


def deaths(tally: Tally, folder: pathlib.Path) -> None:
    data(folder)
    recipe(folder, epochs="30", checkpoint_steps="3")
    process = subprocess.Popen(
        [
            OPDIFF,
            "train",
            str(folder / "recipe.toml"),
            "--out",
            str(folder / "out"),
            "--backend",
            "torch",
            "--steps",
            "300",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (folder / "out" / "checkpoint.json").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    killed = 0
    for worker in children(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
            killed += 1
    out, err = process.communicate(timeout=600)
    faults = (
        []
        if killed and process.returncode == CLEAN
        else [f"killed {killed}, status {process.returncode}: {err[-400:]}"]
    )
    if "again with a fresh worker" not in err or "1 deaths" not in out:
        faults.append(f"the death is not told: {err[-300:]} {out[-300:]}")
    tally.case("a killed worker: the step is repeated", faults)
    shutil.rmtree(folder / "out")
    undisturbed = train(folder, "--backend", "torch", "--steps", "30", out="a")
    tally.case("torch alone", expect(undisturbed, CLEAN, "1 segment"))


def full_disk(tally: Tally, folder: pathlib.Path) -> None:
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(folder)], check=False).returncode
    ):
        print("no small file system can be mounted: the full disk is not tried")
        return
    try:
        data(folder, samples=64)
        recipe(folder, epochs="6")
        done = train(folder, "--steps", "4")
        faults = expect(done, CLEAN)
        kept = (folder / "out" / "checkpoint.json").read_text()
        with contextlib.suppress(OSError), open(folder / "filler", "wb") as filler:
            while True:
                filler.write(b"x" * 1024)
                filler.flush()
        done = train(folder, "--resume")
        faults += expect(done, CANNOT_RUN, "No space left", "the checkpoint before it stays")
        if (folder / "out" / "checkpoint.json").read_text() != kept:
            faults.append("the old checkpoint is gone")
        (folder / "filler").unlink()
        faults += expect(train(folder, "--resume"), CLEAN)
        tally.case("full disk", faults)
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def proven(tally: Tally, folder: pathlib.Path) -> None:
    data(folder)
    recipe(folder)
    done = train(folder, "--backend", "torch", "--steps", "3", "--check", "every", out="healthy")
    tally.case("healthy torch: every step proven", expect(done, CLEAN, "proven:", "in 3 steps", "lockstep:"))
    done = train(folder, "--bind", "Conv=torch", "--steps", "2", "--check", "last", out="mixed")
    tally.case("a mixture", expect(done, CLEAN, "in 1 step:"))
    done = train(folder, "--backend", "torch", "--epochs", "1", "--check", "every", out="epoch")
    tally.case("the last batch, of 8 rows and not 16, too", expect(done, CLEAN, "in 13 steps"))
    lockstep = (folder / "epoch" / "lockstep.csv").read_text().splitlines()
    done = train(folder, "--backend", "torch", "--epochs", "2", "--check", "5", "--resume", out="epoch")
    faults = expect(done, CLEAN, "in 3 steps")  # 16, 21, 26
    resumed = (folder / "epoch" / "lockstep.csv").read_text().splitlines()
    if resumed[: len(lockstep)] != lockstep or len(resumed) != len(lockstep) + 3:
        faults.append(f"lockstep.csv has {len(resumed)} lines after {len(lockstep)}")
    tally.case("a resumed run keeps the steps that were proven before", faults)
    faulty = "faulty:base=torch,node=fc,fault=scale"
    done = train(
        folder, "--backend", "torch", "--bind", f"fc={faulty}", "--steps", "3", "--check", "every", out="faulty"
    )
    tally.case("a planted fault is found", expect(done, DEFECT, "fc ", "defect"))


def main() -> int:
    tally = Tally("train")
    parts = [learning, bad_input, full_disk, lambda t, f: resuming(t, f, "reference", [])]
    if is_there("torch"):
        parts += [
            proven,
            deaths,
            lambda t, f: resuming(t, f, "torch", []),
            lambda t, f: resuming(t, f, "torch", ["--bind", "Gemm=reference"]),
        ]
    else:
        print("torch is not set up: its part is not run")
    for part in parts:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="opdiff-train-"))
        try:
            part(tally, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
