#!/usr/bin/env python3
"""Tools on made-up trees: what is wrong there is found with its place, what is right passes.

trees/TOOL.case holds cases: a line "%% case NAME", then trees. A tree is its files and then all
that the tool says. Each is a line that begins with "%%", and the lines below it:
  %% file PATH                a file as it stands there
  %% header PATH [NAMESPACE]  what stands in a namespace, linerate's if none is named
  %% source PATH NAMESPACE    what stands in one without a name inside of it
  %% layers                   "ROW MODULE: MODULES": what each may include, the highest row first;
                              ROW is "-" of a module that lies in none; "mended UNIT -> UNIT" is a
                              circle that is known
  %% includes                 "PATH: PATHS": files below src/linerate and what each includes
  %% prints                   what is said"""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from the_tree import ROOT

HEADER = "// About it.\n#pragma once\n\nnamespace {0} {{\n\n{1}\n}}  // namespace {0}\n"
SOURCE = "namespace {0} {{\nnamespace {{\n\n{1}\n}}  // namespace\n}}  // namespace {0}\n"
# The path of each tool, and what of the tree it takes.
TOOLS = {"check_layers": ("tools/check_layers.py", ""),
         "check_names": ("tools/check_names.py", ""),
         "check_public": ("tools/check_public.py", ""),
         "filter": ("docs/api/filter.py", "a.hpp")}
PASSES = re.compile("each name once|keep their promises|every arrow points down")
SKIPS = "no public headers\n", 77


def layers(text):
    """The table of layers, and the page that says the same."""
    rows, modules, mended = [], {}, []
    for line in text.splitlines():
        row, _, entry = line.partition(" ")
        module, colon, lower = entry.partition(":")
        if row == "mended":
            mended.append(entry)
            continue
        if row != "-":
            rows.append((row, module))
        if colon:
            modules[module] = lower.split()
    by_row = {row: [m for r, m in rows if r == row] for row, _ in rows}
    table = ["[rows]", *(f"{row} = {names}" for row, names in by_row.items()),
             "[modules]", *(f'"{name}" = {lower}' for name, lower in modules.items()),
             "[third_party]", "[circles]", f"mended_later = {mended}"]
    return {"tools/layers.toml": "\n".join(table),
            "src/README.md": "".join(f"| {row} | `{m}` | this | that |\n" for row, m in rows)}


def includes(text):
    found = {}
    for line in text.splitlines():
        path, *others = line.split()
        names = [o if o.startswith("<") else f'"linerate/{o}"' for o in others]
        found["src/linerate/" + path.rstrip(":")] = "".join(f"#include {n}\n" for n in names)
    return found


def written(kind, text, path="", namespace="linerate"):
    """{file: text} of a part of a tree."""
    if kind == "layers":
        return layers(text)
    if kind == "includes":
        return includes(text)
    return {path: {"file": "{1}", "header": HEADER, "source": SOURCE}[kind].format(namespace, text)}


def trees_of(case):
    """({file: text}, what is printed) of each tree of a case."""
    files = {}
    for part in re.split("^%% ", case, flags=re.M)[1:]:
        title, _, text = part.partition("\n")
        kind, *place = title.split()
        if kind == "prints":
            yield files, text
            files = {}
        else:
            files |= written(kind, text, *place)


def printed(tool, files, argument):
    """What it prints on a tree with these {name: text}, and its exit status; it takes this path of
    the tree."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run = subprocess.run([sys.executable, ROOT / tool, Path(folder) / argument],
                             capture_output=True, text=True)
    assert run.stderr == "", run.stderr
    return run.stdout, run.returncode


class MadeUpTrees(unittest.TestCase):
    def test_what_is_printed(self):
        for page in sorted(Path(__file__).parent.glob("trees/*.case")):
            tool, argument = TOOLS[page.stem]
            for case in re.split("^%% case ", page.read_text(), flags=re.M)[1:]:
                for number, (files, wanted) in enumerate(trees_of(case)):
                    with self.subTest(page.stem, case=case.partition("\n")[0], tree=number):
                        said, status = printed(tool, files, argument)
                        self.assertEqual(said.strip("\n"), wanted.strip("\n"))
                        passes = page.stem == "filter" or PASSES.search(said)
                        if (said, status) != SKIPS:
                            self.assertEqual(status, 0 if passes else said.count("\n"))


unittest.main()
