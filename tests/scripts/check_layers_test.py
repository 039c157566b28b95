#!/usr/bin/env python3
"""scripts/check_layers finds a planted breach, and none in the sources as they are."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(files: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """Status and lines of check_layers over a src/ with these files; without any, over ours."""
    with tempfile.TemporaryDirectory() as source:
        for name, text in (files or {}).items():
            path = pathlib.Path(source, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [sys.executable, ROOT / "scripts" / "check_layers"] + ([source] if files is not None else [])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()


class CheckLayers(unittest.TestCase):
    def test_ours(self):
        self.assertEqual(check(), (0, []))

    def test_upwards_and_sideways(self):
        files = {
            "judge/a.h": '#include <vector>\n#include "base/error.h"\n#include "judge/b.h"\n',
            "cli/main.cpp": '#include "report/console.h"\n',
        }
        self.assertEqual(check(files), (0, []))

    def test_downwards(self):
        for name in ("judge/a.h", "judge/a.cpp", "judge/deeper/a.cpp", "judge/table.cpp.in"):
            status, lines = check({name: '#pragma once\n  #  include "plan/probe.h"\n'})
            self.assertEqual((status, len(lines)), (1, 1), name)
            self.assertIn(f"{name}:2: judge/ must not include plan/", lines[0])

    def test_every_breach_is_named(self):
        status, lines = check({"base/a.h": '#include "ops/op.h"\n#include "graph/graph.h"\n'})
        self.assertEqual((status, len(lines)), (1, 2))

    def test_unknown_folders(self):
        self.assertEqual(check({"base/a.h": '#include "nowhere/x.h"\n'})[0], 1)  # included
        status, lines = check({"new/a.h": "#pragma once\n"})  # in src/, but not in the order
        self.assertEqual((status, len(lines)), (1, 1))
        self.assertIn("new", lines[0])


if __name__ == "__main__":
    unittest.main()
