#!/usr/bin/env python3
"""tools/check_format.py on made-up files: which lines are too long, which files people write."""
import tempfile
import unittest
from pathlib import Path

from the_tree import module_of

check_format = module_of("tools/check_format.py")
FITS, LONG = "x" * 100, "word " * 20 + "x"


def lines(name, *text):
    return [number for number, _ in check_format.too_long(name, "\n".join(text))]


class Columns(unittest.TestCase):
    def test_a_hundred_fit(self):
        self.assertEqual(check_format.too_long("a.py", f"{FITS}\n{LONG}\n"), [(2, 101)])

    def test_they_are_characters_and_not_bytes(self):
        self.assertEqual(lines("a.py", "×" * 100), [])

    def test_an_address_may_make_a_line_longer(self):
        address = "https://example.com/" + "x" * 90
        self.assertEqual(lines("a.cpp", f"// {address}", f"// {address} {LONG}"), [2])
        self.assertEqual(lines("README.md", f"See [this]({address}).", f"See (this {LONG})."), [2])

    def test_rows_of_a_table_may_be_longer_in_pages_alone(self):
        row = f"| {LONG} |"
        self.assertEqual(lines("README.md", row, LONG, f"  {row}"), [2])
        self.assertEqual(lines("a.py", row), [1])

    def test_a_page_may_show_what_a_program_printed_but_no_longer_code(self):
        for language, found in (("", []), ("text", []), ("console", []), ("cpp", [2]), ("sh", [2])):
            self.assertEqual(lines("README.md", f"```{language}", LONG, "```"), found, language)
        page = "```", LONG, "```", LONG, "```cpp", LONG, "```"
        self.assertEqual(lines("README.md", *page), [4, 6])

    def test_a_raw_string_of_several_lines_may_be_longer(self):
        self.assertEqual(lines("a.cpp", f'f(R"({LONG}', LONG, f'{LONG})");', LONG), [4])
        self.assertEqual(lines("a.hpp", f'f(R"json({LONG})json");'), [1])
        self.assertEqual(lines("a.py", f'f(R"({LONG}', f'{LONG})");'), [1, 2])


class Files(unittest.TestCase):
    def test_sources_pages_and_scripts_are_written_data_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text, written in (
                    ("README.md", "", True), ("a.hpp", "", True), ("CMakeLists.txt", "", True),
                    ("a.py", "", True), ("page.js", "", True), ("Makefile", "", True),
                    ("tool", "#!/usr/bin/env bash\n", True), ("LICENSE", "Apache\n", False),
                    ("frozen.txt", "", False), ("a.json", "", False), ("a.svg", "", False),
                    ("a.cli", "#!", False)):
                path = Path(folder) / name
                path.write_text(text)
                self.assertEqual(check_format.is_written(path), written, name)

    def test_every_kind_is_found_in_this_tree(self):
        found = {p.suffix or p.name for p in check_format.written_files()}
        self.assertLessEqual({".md", ".cpp", ".hpp", ".py", ".cmake", ".js", ".css", ".toml", ".sh",
                              "Makefile", ".txt", "setup", "mpirun"}, found)


unittest.main()
