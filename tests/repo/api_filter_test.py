#!/usr/bin/env python3
"""What docs/api/filter.py makes of the house style, and that it documents nothing that the header
leaves open."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FILTER = Path(__file__).resolve().parents[2] / "docs/api/filter.py"


def filtered(header):
    with tempfile.NamedTemporaryFile("w", suffix=".hpp") as file:
        file.write(header)
        file.flush()
        return subprocess.run([sys.executable, FILTER, file.name], capture_output=True, text=True,
                              check=True).stdout


class Filter(unittest.TestCase):
    def expect(self, header, wanted):
        self.assertEqual(filtered(header), wanted)

    def test_the_head_is_the_files(self):
        self.expect("// What it is,\n// at length.\n#pragma once\n",
                    "/// @file\n/// What it is,\n/// at length.\n#pragma once\n")

    def test_comments_behind_members_are_theirs_and_go_on_below(self):
        self.expect(
            "struct A {\n  int a = 0;  // first\n              // line two\n  int b = 0;\n};\n",
            "struct A {\n  int a = 0;  ///< first\n              ///< line two\n  int b = 0;\n};\n")

    def test_comments_above_are_of_what_follows(self):
        self.expect(
            "struct A {\n  // Of the group.\n  int a = 0;\n  /// As ever.\n  int b = 0;\n};\n",
            "struct A {\n  /// Of the group.\n  int a = 0;\n  /// As ever.\n  int b = 0;\n};\n")

    def test_one_comment_is_of_all_that_a_line_declares(self):
        self.expect("  double low_s = 0, high_s = 0;  // ends\n",
                    "  double low_s = 0; /**< ends */ double high_s = 0; /**< ends */\n")
        self.expect("x\n  // Ends.\n  std::optional<double> low, high;\n",
                    "x\n  /// Ends.\n  std::optional<double> low; /**  Ends. */ "
                    "std::optional<double> high;\n")

    def test_what_is_left_open_stays_open(self):
        for line in ("  double a = 0, b = 0;\n", "int f(const A& a);\n", "struct A {\n",
                     "}  // namespace linerate\n", "  void save();\n", 'f("http://a");\n'):
            self.expect(line, line)

    def test_conventions_are_said_unless_the_header_says_more(self):
        self.assertIn("/** Compares all members. */",
                      filtered("  bool operator==(const A&) const = default;\n"))
        self.expect("x\n/// Bitwise.\n  bool operator==(const A&) const = default;\n",
                    "x\n/// Bitwise.\n  bool operator==(const A&) const = default;\n")

    def test_copies_and_destructors_are_left_out_unless_the_header_says_something(self):
        self.expect("x\n  ~A();\n  A(const A&) = delete;\n  A& operator=(const A&) = delete;\n",
                    "x\n\n\n\n")
        self.expect("x\n  /// Warns.\n  ~A();\n  int b();\n",
                    "x\n  /// Warns.\n  ~A();\n  int b();\n")

    def test_what_is_private_to_a_module_is_hidden_up_to_the_next_empty_line(self):
        self.expect("x\n  /// Private to exec: both.\n  A& a();\n  B& b();\n\n  C& c();\n",
                    "x\n\n\n\n\n  C& c();\n")


unittest.main()
