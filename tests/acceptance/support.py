"""What the acceptance tests share: runs of `opdiff compare`, and what a run must not leave behind.

Environment: OPDIFF, the program (default: build/opdiff of this checkout).
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPDIFF = os.environ.get("OPDIFF", str(ROOT / "build" / "opdiff"))
SKIPPED = 77  # CTest's SKIP_RETURN_CODE
MARK = "OPDIFF_ACCEPTANCE_RUN"
CLEAN, DEFECT, CANNOT_RUN, CRASHED = 0, 1, 2, 3


class Tally:
    """Counts checks, prints each failure at once and the count at the end."""

    def __init__(self, what: str):
        self.what, self.passed, self.failures = what, 0, []

    def case(self, name: str, faults: list[str]) -> None:
        if faults:
            self.failures.append(name)
            print(f"FAILED  {name}", *(f"        {fault}" for fault in faults), sep="\n", flush=True)
        else:
            self.passed += 1
            print(f"ok      {name}", flush=True)

    def close(self) -> int:
        print(f"{self.what}: {self.passed} of {self.passed + len(self.failures)}")
        return 1 if self.failures else 0


class Run:
    """One `opdiff compare`: exit status, output, result.json, and what it left behind."""

    def __init__(self, arguments: list[str], out: pathlib.Path, temporary: pathlib.Path, environment=None):
        self.out, self.temporary, self.mark = out, temporary, uuid.uuid4().hex
        self.command = [OPDIFF, "compare", *map(str, arguments), "--out", str(out)]
        self.shared_memory = shared_memory()
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {}), MARK: self.mark, "TMPDIR": str(temporary), "NO_COLOR": "1"},
        )

    def finish(self, timeout: float = 900) -> "Run":
        try:
            self.stdout, self.stderr = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.stdout, self.stderr = self.process.communicate()
            self.stderr += f"\n(killed by the test after {timeout} s)"
        self.status = self.process.returncode
        try:
            self.result = json.loads((self.out / "result.json").read_text())
        except (OSError, ValueError):
            self.result = None
        return self

    def processes(self) -> list[int]:
        """Processes of this run, by the mark in their environment; zombies have none."""
        found, mark = [], f"{MARK}={self.mark}".encode()
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                if mark in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
        return found

    def workers(self) -> list[int]:
        return [pid for pid in self.processes() if pid != self.process.pid]

    def leftovers(self) -> list[str]:
        """Processes, shared memory, temporary and half-written files."""
        deadline = time.monotonic() + 2  # the kernel needs a moment to take what was killed
        while self.workers() and time.monotonic() < deadline:
            time.sleep(0.02)
        faults = [f"left process {pid}" for pid in self.workers()]
        faults += [f"left shared memory {name}" for name in shared_memory() - self.shared_memory]
        faults += [f"left temporary file {path}" for path in self.temporary.rglob("*")]
        if self.out.exists():
            faults += [f"left half-written {path}" for path in self.out.rglob("*") if path.name.endswith(".tmp")]
            if (self.out / "result.json").exists() and self.result is None:
                faults.append("result.json is no JSON")
        return faults

    def describe(self) -> str:
        return f"status {self.status}; {self.stderr.strip()[-600:] or self.stdout.strip()[:600]}"


def shared_memory() -> set[str]:
    """Segments that could be ours: other programs on the machine make some, too."""
    return {name for name in os.listdir("/dev/shm") if "opdiff" in name}


@contextlib.contextmanager
def starting(*arguments, environment=None):
    """A run that has been started, in folders that go with it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="opdiff-acceptance-"))
    (folder / "tmp").mkdir()
    run = Run(list(arguments), folder / "out", folder / "tmp", environment)
    try:
        yield run
    finally:
        for pid in run.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if run.process.poll() is None:
            run.process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def compare(*arguments, timeout: float = 900, environment=None):
    with starting(*arguments, environment=environment) as run:
        yield run.finish(timeout)


def is_there(spec: str) -> bool:
    name, _, version = spec.partition("@")
    done = subprocess.run([OPDIFF, "backend", "list", name], capture_output=True, text=True, check=False)
    return any(line.startswith(f"  {name}@{version}") for line in done.stdout.splitlines())


def require(*specs: str) -> None:
    """Ends the test as skipped where a backend is not set up; with OPDIFF_REQUIRE=1 as failed."""
    for spec in dict.fromkeys(specs):
        if not is_there(spec):
            print(f"{spec} is not set up: opdiff backend add {spec.replace('@', '==')}")
            sys.exit(1 if os.environ.get("OPDIFF_REQUIRE") == "1" else SKIPPED)


def lenet_inputs(folder: pathlib.Path, count: int = 100) -> list[str]:
    """Test digits where they were fetched, else inputs drawn from the seed."""
    script = ROOT / "examples" / "lenet5" / "make_digits.py"
    digits = folder / "digits.npz"
    with contextlib.suppress(OSError):
        done = subprocess.run([sys.executable, script, digits, str(count)], capture_output=True, check=False)
        if done.returncode == 0 and digits.exists():
            return ["--inputs", str(digits)]
    print(f"no MNIST digits: {count} images of seeded noise instead")
    return ["--dim", f"batch={count}"]


LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"
RESIDUAL = ROOT / "tests" / "models" / "residual12.onnx"
RESIDUAL_INPUTS = ["--inputs", str(ROOT / "tests" / "models" / "residual12_inputs.npz")]
