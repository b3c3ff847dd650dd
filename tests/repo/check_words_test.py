#!/usr/bin/env python3
"""tools/check_words.py on made-up files: comments, strings and prose are read, code is not."""
import importlib.util
import unittest
from pathlib import Path

spec = importlib.util.spec_from_file_location(
    "check_words", Path(__file__).resolve().parents[2] / "tools/check_words.py")
check_words = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_words)


def lines(word, text, suffix=".cpp"):
    return check_words.lines_with(word, check_words.prose_of(text, suffix))


class Words(unittest.TestCase):
    def test_comments_and_strings_are_read(self):
        self.assertEqual(lines("behind", '// a behind b\nint x = f("behind");\n/* c\nbehind */'),
                         [1, 2, 4])

    def test_code_is_not(self):
        self.assertEqual(lines("behind", "int behind = 1'000'000; char c = '\"'; behind(behind);\n"
                                         "#include \"behind.hpp\"\n"), [])

    def test_an_identifier_in_a_comment_is_no_word(self):
        self.assertEqual(lines("behind", "// buckets_behind() and Behind_ are names"), [])

    def test_a_line_may_end_between_two_words(self):
        self.assertEqual(lines("in front of", "  /// what stands in\n  /// front of it\n"), [1])

    def test_code_blocks_of_a_page_are_not_read(self):
        self.assertEqual(lines("behind", "behind\n```\nbehind\n```\nBehind", ".md"), [1, 5])


unittest.main()
