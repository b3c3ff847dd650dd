#!/usr/bin/env python3
"""Each example is a program that a stranger can copy: short, from public headers alone, with its
runs in its head comment, run by ctest, and named on the front page of the API reference.

Usage: examples_test.py BUILD_FOLDER [mpi] [torch]: what the build has. Examples that need more have
no test there.
"""
import re
import subprocess
import sys
import unittest

from the_tree import ROOT
MOST_LINES = 79
BUILD, HAS = sys.argv[1], set(sys.argv[2:])
EXAMPLES = sorted((ROOT / "examples").glob("*.cpp"))


def needs(text):
    return {part for part, mark in (("mpi", "linerate/comm/mpi/"), ("torch", "<torch/"))
            if mark in text}


class Examples(unittest.TestCase):
    def each(self):
        self.assertGreater(len(EXAMPLES), 10)
        for path in EXAMPLES:
            with self.subTest(path.name):
                yield path, path.read_text()

    def test_are_short(self):
        for path, text in self.each():
            self.assertLessEqual(len(text.splitlines()), MOST_LINES)

    def test_include_what_is_public(self):
        for path, text in self.each():
            includes = re.findall(r'#include "(.*?)"', text)
            self.assertEqual([i for i in includes if not (ROOT / "include" / i).exists()], [])

    def test_begin_with_their_runs(self):
        for path, text in self.each():
            head = re.match(r"(//.*\n)+", text)[0]
            self.assertRegex(head, rf"(?m)^//   \$ (mpirun -n 2 )?\./{path.stem}\b")

    def test_are_run(self):
        listed = subprocess.run(["ctest", "-N", "-R", "^example\\."], cwd=BUILD,
                                capture_output=True, text=True).stdout
        tests = set(re.findall(r"example\.(\S+)", listed))
        self.assertEqual({path.stem for path, text in self.each() if needs(text) <= HAS} - tests,
                         set())

    def test_are_on_the_front_page(self):
        page = (ROOT / "docs/api/front-page.md").read_text()
        for path, _ in self.each():
            self.assertIn(path.name, page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
