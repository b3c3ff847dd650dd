#!/usr/bin/env python3
"""tools/progress: what is counted becomes progress, what is not is printed, a failure stays one."""
import io
import os
import runpy
import subprocess
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/progress"
Progress = runpy.run_path(str(TOOL))["Progress"]


def printed(lines, terminal, status=0, apart_s=0):
    to, clock = io.StringIO(), iter(range(0, 10000, apart_s or 1))
    progress = Progress(to, terminal, now=lambda: next(clock))
    for line in lines:
        progress.see(line)
    progress.end(status)
    return to.getvalue()


class ProgressOfABuild(unittest.TestCase):
    def test_prints_what_is_not_counted(self):
        for terminal in (True, False):
            text = printed(["[1/2] Building a.o\n", "a.cpp:1: warning: x\n", "[2/2] Linking\n"],
                           terminal)
            self.assertIn("a.cpp:1: warning: x\n", text)
            self.assertNotIn("Building a.o", text)
            self.assertIn("built 2 parts in ", text)

    def test_prints_few_lines_to_a_file(self):
        lines = [f"[{k}/240] Building {k}.o\n" for k in range(1, 241)]
        self.assertEqual(printed(lines, False).count("\n"), 240 // 60 * 2 + 1)
        self.assertEqual(printed(lines, True).count("\n"), 1)

    def test_is_silent_of_a_build_with_nothing_to_do(self):
        self.assertEqual(printed(["ninja: no work to do.\n"], False), "")

    def test_ends_as_the_command_does(self):
        for script, status in (("exit 3", 3), ("kill -9 $$", 137), ("true", 0)):
            done = subprocess.run([TOOL, "bash", "-c", f"echo error: no; {script}"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, status)
            self.assertIn("error: no", done.stdout)

    def test_a_warning_fails_where_none_is_allowed(self):
        for allowed, status in (("0", 0), ("1", 1)):
            done = subprocess.run([TOOL, "echo", "a.cpp:1: warning: x"], capture_output=True,
                                  env={**os.environ, "LINERATE_NO_WARNINGS": allowed})
            self.assertEqual(done.returncode, status)


if __name__ == "__main__":
    unittest.main()
