#!/usr/bin/env python3
"""docs/from-pytorch-ddp.md has a row for each argument and each public member of the installed DistributedDataParallel.

Runs in the Python of the build (tools/find-torch); exit 77 (skipped) if there is none.
"""
import inspect
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/from-pytorch-ddp.md"

try:
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    python = subprocess.run([ROOT / "tools/find-torch"], capture_output=True, text=True).stdout.strip()
    if not python or "found" in sys.argv:
        print("skipped: no Python here has torch")
        sys.exit(77)
    os.execv(python, [python, __file__, "found"])

# Set in the constructor, so that the class does not show them.
ATTRIBUTES = {"module", "require_backward_grad_sync"}


def rows_of(heading):
    """The cells of the rows of the table under a heading."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)[1]
    rows = re.findall(r"^\| (.*) \|$", section, re.M)
    return [[cell.strip() for cell in row.split("|")] for row in rows if not row.startswith("PyTorch")]


class Page(unittest.TestCase):
    def test_has_every_argument_of_the_constructor_in_its_order_with_its_default(self):
        parameters = list(inspect.signature(DistributedDataParallel.__init__).parameters.values())[1:]
        wanted = [f"`{p.name}`" if p.default is inspect.Parameter.empty else f"`{p.name}={p.default!r}`" for p in parameters]
        self.assertEqual([row[0] for row in rows_of("Constructor")], wanted)

    def test_has_every_public_member_and_none_that_does_not_exist(self):
        named = [re.fullmatch(r"`(\w+)`", row[0])[1] for row in rows_of("Methods and attributes")]
        self.assertEqual(len(named), len(set(named)))
        members = set(vars(DistributedDataParallel))
        self.assertEqual(set(named) - members - ATTRIBUTES, set())
        self.assertEqual({m for m in members if not m.startswith("_")} - set(named), set())

    def test_shows_what_it_does_not_call_none(self):
        for heading in ("Constructor", "Methods and attributes", "Hooks", "Around it"):
            for what, here, shown in rows_of(heading):
                if not here.startswith("none"):
                    self.assertTrue(shown or "LibTorch's" in here, f"{what}: nothing shows it")


unittest.main(argv=sys.argv[:1])
