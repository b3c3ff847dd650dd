#!/usr/bin/env python3
"""tools/check_words.py on made-up files: comments, strings and prose are read, code is not; pages
and sentences that are too long are named."""
import unittest

from the_tree import module_of

check_words = module_of("tools/check_words.py")


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


class Pages(unittest.TestCase):
    def test_a_sentence_too_long_is_named_with_its_line(self):
        page = "# Title\n\nShort. " + "word " * 25 + "end.\nNext.\n"
        found = list(check_words.problems_of_sentences("docs/cpp.md", page))
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], r"^docs/cpp.md:3: a sentence of 26 words, expected at most 25")

    def test_a_sentence_may_go_on_on_the_next_line_and_begin_on_a_later_one(self):
        page = "One.\nTwo " + "word " * 12 + "\n" + "word " * 12 + "end."
        self.assertEqual([n for n, _ in check_words.sentences_of(page)], [1, 2])
        self.assertEqual(len(list(check_words.problems_of_sentences("README.md", page))), 1)

    def test_items_of_a_list_are_sentences_of_their_own(self):
        page = "- " + "word " * 20 + "\n- " + "word " * 20 + "\n  more\n1. " + "word " * 20
        self.assertEqual([n for n, _ in check_words.sentences_of(page)], [1, 2, 4])
        self.assertEqual(list(check_words.problems_of_sentences("README.md", page)), [])

    def test_code_tables_and_headings_are_no_sentences(self):
        long = "word " * 30
        page = f"# {long}\n\n```\n{long}\n```\n\n| {long} |\n\n    {long}\n<!-- {long} -->\n"
        self.assertEqual(list(check_words.sentences_of(page)), [])

    def test_a_piece_of_code_is_one_word(self):
        self.assertEqual(check_words.words_of("Say `a b c` of [two words](README.md#y)."), 5)

    def test_pages_together_may_be_too_long(self):
        most = check_words.limits["pages"]["words_at_most"]
        fits = {"docs/cpp.md": "a " * (most - 10), "docs/kfac.md": "b " * 10}
        self.assertEqual(list(check_words.problems_of_length(fits)), [])
        found = list(check_words.problems_of_length({**fits, "docs/units.md": "c c c"}))
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], rf"^docs: {most + 3} words .* at most {most}; cut 3, ")
        self.assertRegex(found[0], rf": docs/cpp.md {most - 10}, docs/kfac.md 10, docs/units.md 3$")

    def test_the_limits_are_those_that_were_agreed(self):
        self.assertEqual(check_words.limits["pages"],
                         {"words_at_most": 38000, "words_of_a_sentence_at_most": 25})


unittest.main()
