#!/usr/bin/env python3
"""CONTRIBUTING.md's tables of what a small change touches are whole: a file that names the example
of a kind (a strategy, a compressor, an importer, a verb) is in its table if it lies in include, src
or tools, and so is a page that names most of the kind; nothing else is. What tools/check_docs.py
holds as well: paths exist, quoted code stands in its file."""
import re
import unittest

from the_tree import ROOT
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
MOST = 0.75  # of a kind: a page that names as many is a list, and a new one belongs on it


def read(path):
    return (ROOT / path).read_text()


def lines_of(list_name, path):
    """The names in a registry's macro: STRATEGY(bulk) ... -> bulk."""
    return re.findall(rf"^  {list_name}\((\w+)\)", read(path), re.M)


def files_below(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in (".cpp", ".hpp", ".toml", ".txt", ".md"):
                yield path


class Kind:
    """Things of one registry, and how a file names one of them: {} stands for the name."""

    def __init__(self, registry, macro, named):
        self.macro, self.named = macro, named
        self.all = lines_of(macro, registry)

    def names(self, thing, text):
        """By the file's name in the registry, or as users write it: mg_wfbp is mg-wfbp."""
        return any(re.search(self.named.replace("{}", word), text)
                   for word in {thing, thing.replace("_", "-")})


WORD = r"(?<![\w-]){}(?![\w-])"
KINDS = {
    "strategy": Kind("src/linerate/plan/registry.cpp", "STRATEGY", WORD),
    "compressor": Kind("src/linerate/compress/registry.cpp", "COMPRESSOR", WORD),
    "importer": Kind("src/linerate/trace/importers.cpp", "FOLDER",
                     r"\b{}_importers|FOLDER\({}\)|\btrace/{}\b"),
    "verb": Kind("src/linerate/cli/verb.hpp", "VERB", r"(?:linerate |setup_|VERB\(){}\b"),
}


def table_of(kind):
    """(example, [paths in the first column]) of "### A KIND: `example`"."""
    heading = re.search(rf"^### An? {kind}: `([\w-]+)`\n\n((?:\|[^\n]*\n)+)", CONTRIBUTING, re.M)
    paths = []
    for row in heading[2].splitlines()[2:]:
        paths += re.findall(r"`([^`]+)`", row.split("|")[1])
    return heading[1], paths


class Loop(unittest.TestCase):
    def test_pages_name_targets_that_the_makefile_has(self):
        targets = set(re.findall(r"^([\w -]+):", read("Makefile"), re.M))
        targets = {name for names in targets for name in names.split()}
        for page in ("CONTRIBUTING.md", "README.md", "tests/README.md"):
            for line in re.findall(r"(?:^|`)make ((?:[a-z]+(?:-[a-z]+)*)(?: [a-z]+(?:-[a-z]+)*)*)",
                                   read(page), re.M):
                self.assertLessEqual(set(line.split()), targets, f"{page}: make {line}")


class Tables(unittest.TestCase):
    def test_list_every_file_that_names_the_example(self):
        for kind, things in KINDS.items():
            example, listed = table_of(kind)
            self.assertIn(example, things.all)
            naming = {str(p.relative_to(ROOT)) for p in files_below("include", "src", "tools")
                      if things.names(example, p.read_text())}
            self.assertEqual(sorted(naming - set(listed)), [],
                             f"{kind}: name {example} and are not in CONTRIBUTING's table")

    def test_name_no_file_that_the_change_does_not_touch(self):
        for kind, things in KINDS.items():
            example, listed = table_of(kind)
            for path in listed:
                self.assertRegex(read(path), re.compile(example, re.I),
                                 f"{kind}: {path} does not name {example}")

    def test_list_every_page_that_names_most_of_a_kind(self):
        """But for pages whose rows a command writes."""
        for kind, things in KINDS.items():
            _, listed = table_of(kind)
            for path in [*files_below("docs"), ROOT / "README.md"]:
                if "<!-- rows are written by" in path.read_text():
                    continue
                named = [thing for thing in things.all if things.names(thing, path.read_text())]
                if len(named) < MOST * len(things.all):
                    continue
                page = str(path.relative_to(ROOT))
                self.assertIn(page, listed, f"{page} names {len(named)} of {len(things.all)}: list "
                                            f"it under \"A {kind}\"")
                self.assertEqual(sorted(set(things.all) - set(named)), [],
                                 f"{page} names every {kind} but these")

    def test_hold_for_each_of_a_kind(self):
        """What the example has, the others have: a source of the same name, and a row of
        expectations."""
        for thing in KINDS["strategy"].all:
            self.assertTrue((ROOT / f"src/linerate/plan/exchange/{thing}.cpp").exists(), thing)
        rows = read("tests/compress/expectations.cpp")
        for thing in KINDS["compressor"].all:
            self.assertTrue((ROOT / f"src/linerate/compress/method/{thing}.cpp").exists(), thing)
            self.assertTrue(KINDS["compressor"].names(thing, rows),
                            f"{thing} has no row of expectations")
        for thing in KINDS["importer"].all:
            self.assertTrue((ROOT / "src/linerate/trace" / thing).is_dir(), thing)
            self.assertTrue(KINDS["importer"].names(thing, read("tools/layers.toml")),
                            f"{thing} has no row in tools/layers.toml")
        transcripts = "".join(p.read_text() for p in (ROOT / "tests").rglob("*.cli"))
        for thing in KINDS["verb"].all:
            self.assertTrue((ROOT / f"src/linerate/cli/{thing}.cpp").exists(), thing)
            self.assertTrue(KINDS["verb"].names(thing, transcripts), f"{thing} has no transcript")


unittest.main()
