#!/usr/bin/env python3
"""The route of docs/spine.md exists: every file that a table names, with the name to look for. Ten
files make the first day, in the lines that the page says, and pages lead there."""
import re
import unittest

from the_tree import ROOT
PAGE = (ROOT / "docs/spine.md").read_text()
ROW = re.compile(r"^\| `(?P<file>[^`]+)` \| `(?P<name>[^`]+)` \|", re.M)
TABLES = {title: [m.groups() for m in ROW.finditer(body)]
          for title, _, body in (part.partition("\n") for part in PAGE.split("\n## ")[1:])}


class Spine(unittest.TestCase):
    def test_every_file_has_what_to_look_for(self):
        for title, rows in TABLES.items():
            self.assertGreaterEqual(len(rows), 8, title)
            for file, name in rows:
                with self.subTest(file):
                    self.assertRegex((ROOT / file).read_text(), re.escape(name))

    def test_every_path_is_in_a_row_that_is_read(self):
        named = set(re.findall(r"`((?:src|include)/[^`]+\.[ch]pp)`", PAGE))
        self.assertEqual(named, {file for rows in TABLES.values() for file, _ in rows})

    def test_the_first_day_is_ten_files_of_so_many_lines(self):
        rows = TABLES["Ten files for the first day"]
        self.assertEqual(len({file for file, _ in rows}), 10)
        said = int(re.search(r"About ([\d,]+) lines", PAGE)[1].replace(",", ""))
        found = sum(len((ROOT / file).read_text().splitlines()) for file, _ in rows)
        self.assertAlmostEqual(said, found, delta=0.1 * found)

    def test_each_way_has_a_page_s_section(self):
        self.assertEqual([title.split()[-1] for title in TABLES],
                         ["day", "gradient", "factor", "trace"])

    def test_pages_lead_there(self):
        for page in ("CONTRIBUTING.md", "README.md", "src/README.md"):
            self.assertTrue("docs/spine.md" in (ROOT / page).read_text(), page)


unittest.main()
