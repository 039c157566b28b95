#!/usr/bin/env python3
"""scripts/check_docs finds each kind of breach, and none where there is none."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_docs"


def check(**files: str) -> tuple[int, list[str]]:
    """Status and lines of check_docs over a tree; in the keywords, `__` stands for `/`."""
    with tempfile.TemporaryDirectory() as root:
        for key, text in files.items():
            path = pathlib.Path(root, *key.split("__"))
            path = path if path.name == "commands" else path.with_suffix(".md")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()


class CheckDocs(unittest.TestCase):
    def test_clean(self):
        text = "# A title\n\n[the tour](docs/tour.md#two-words), [here](#a-title)\n```console\n$ run it\noutput\n```\n"
        self.assertEqual(
            check(
                README=text,
                docs__tour="## Two *words*\n[up](../README.md)\n[web](https://x.example/y)\n",
                tests__docs__commands="# run by the documentation test\nrun it\n",
            ),
            (0, []),
        )

    def test_command_without_test(self):
        for block in ("```console\n$ run it\n```", "```bash\n# why\nrun it\n```", "```sh\n$ run it\n```"):
            status, lines = check(README="text\n" + block)
            self.assertEqual((status, len(lines)), (1, 1), block)
            self.assertIn("run it", lines[0])

    def test_command_over_two_lines(self):
        text = "```console\n$ run \\\n      it\noutput \\\n```\n"
        self.assertEqual(check(docs__formats__wire=text, tests__docs__commands="run it\n"), (0, []))

    def test_other_blocks_are_no_commands(self):
        self.assertEqual(check(README="```cpp\n$ x\n```\n```\n$ y\n```\n$ z\n"), (0, []))

    def test_only_readme_and_docs_show_commands(self):
        self.assertEqual(check(bench__README="```console\n$ run it\n```\n"), (0, []))

    def test_stale_command(self):
        self.assertEqual(
            check(README="", tests__docs__commands="gone\n"),
            (1, ["tests/docs/commands:1: no document shows this command: gone"]),
        )

    def test_broken_links(self):
        for target, reason in {
            "absent.md": "no such file",
            "../outside.md": "leaves the repository",
            "/etc/passwd": "leaves the repository",
            "#nowhere": "no such heading",
        }.items():
            for text in (f"a\n[b]({target})", f"a\n[b]: {target}", f'a\n![b]({target} "title")'):
                status, lines = check(README=text)
                self.assertEqual((status, len(lines)), (1, 1), text)
                self.assertTrue(lines[0].startswith("README.md:2: "), lines)
                self.assertIn(reason, lines[0])

    def test_links_in_code_are_none(self):
        self.assertEqual(check(README="`[a](absent.md)`\n```\n[a](absent.md)\n```\n"), (0, []))


if __name__ == "__main__":
    unittest.main()
