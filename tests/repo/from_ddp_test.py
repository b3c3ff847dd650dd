#!/usr/bin/env python3
"""docs/from-pytorch-ddp.md (C++) and docs/from-pytorch-ddp-python.md have a row for each argument
and each public member of the installed DistributedDataParallel; the latter names only tests that
exist.

Runs in the Python of the build (tools/find-torch); exit 77 (skipped) if there is none.
"""
import inspect
import os
import re
import subprocess
import sys
import unittest

from the_tree import ROOT
PAGES = (ROOT / "docs/from-pytorch-ddp.md", ROOT / "docs/from-pytorch-ddp-python.md")

try:
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    python = subprocess.run([ROOT / "tools/find-torch"], capture_output=True,
                            text=True).stdout.strip()
    if not python or "found" in sys.argv:
        print("skipped: no Python here has torch")
        sys.exit(77)
    os.execv(python, [python, __file__, "found"])

# Set in the constructor, so that the class does not show them.
HEADINGS = ("Constructor", "Methods and attributes", "Hooks", "Around it")
TESTS = ROOT / "tests/python_torch"
sys.path.append(str(TESTS))
from jobs import names_of_uses  # noqa: E402

TABLE_OF_USES = TESTS / "README.md"
ATTRIBUTES = {"module", "require_backward_grad_sync"}


def rows_of(page, heading):
    """The cells of the rows of the table under a heading."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S)[1]
    rows = re.findall(r"^\| (.*) \|$", section, re.M)
    return [[cell.strip() for cell in row.split("|")] for row in rows
            if not row.startswith(("PyTorch", "use |"))]


class Page(unittest.TestCase):
    def each(self):
        for page in PAGES:
            with self.subTest(page.name):
                yield page

    def test_has_every_argument_of_the_constructor_in_its_order_with_its_default(self):
        parameters = list(
            inspect.signature(DistributedDataParallel.__init__).parameters.values())[1:]
        wanted = [f"`{p.name}`" if p.default is inspect.Parameter.empty
                  else f"`{p.name}={p.default!r}`" for p in parameters]
        for page in self.each():
            self.assertEqual([row[0] for row in rows_of(page, "Constructor")], wanted)

    def test_has_every_public_member_and_none_that_does_not_exist(self):
        for page in self.each():
            named = [re.fullmatch(r"`(\w+)`", row[0])[1]
                     for row in rows_of(page, "Methods and attributes")]
            self.assertEqual(len(named), len(set(named)))
            members = set(vars(DistributedDataParallel))
            self.assertEqual(set(named) - members - ATTRIBUTES, set())
            self.assertEqual({m for m in members if not m.startswith("_")} - set(named), set())

    def test_shows_what_it_does_not_call_none(self):
        for page in self.each():
            for heading in HEADINGS:
                for what, here, shown in rows_of(page, heading):
                    if not here.startswith("none"):
                        self.assertTrue(shown or "LibTorch's" in here, f"{what}: nothing shows it")

    def test_names_uses_that_exist_in_python(self):
        uses = {*names_of_uses(), *(t.name for t in TESTS.glob("test_*.py"))}
        for page, headings, column in ((PAGES[1], HEADINGS, 2), (TABLE_OF_USES, ["Uses"], 1)):
            named = {n for h in headings for row in rows_of(page, h)
                     for n in re.findall(r"`([\w.]+)`", row[column])}
            self.assertGreater(len(named), 20)
            self.assertEqual(named - uses, set())

    def test_pythons_table_of_uses_has_all_of_them(self):
        named = {n for row in rows_of(TABLE_OF_USES, "Uses")
                 for n in re.findall(r"`([\w.]+)`", row[1])}
        self.assertEqual(set(names_of_uses()) - named, set())


unittest.main(argv=sys.argv[:1])
