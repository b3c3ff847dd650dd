#!/usr/bin/env python3
"""Checks documents: they name only what exists (relative links with their headings, `src/...`-like
paths, commands' verbs and options, tests as `Suite.Name`); commands that build say for how long;
C++ and diff blocks after a paragraph that names source files and ends with a colon are parts of
these files; and comments of sources cite only pages that lie in the tree.

Usage: check_docs.py [path of the built linerate]. Exit status: the number of problems, at most 99.
"""
import functools
import re
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
problems = []
PATH = re.compile(r"`((?:src|tests|bench|docs|tools|examples|cmake)/[A-Za-z0-9_./-]+)`")


def wrong(page, what):
    problems.append(f"{page.relative_to(root)}: {what}")


def anchors_of(page):
    """What links may name in a page: its headings as GitHub spells them, "## A verb: `x`" is
    a-verb-x."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S),
                          re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_paths(page, text):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text):
        if "://" in target:
            continue
        linked = page.parent / target if target else page
        if not linked.exists():
            wrong(page, f"link to {target}, which does not exist")
        elif anchor and anchor not in anchors_of(linked):
            wrong(page, f"link to {target}#{anchor}, a heading that does not exist")
    for target in PATH.findall(text):
        if (not (root / target.rstrip("/")).exists()
            and not list(root.glob(target.rstrip("/") + ".*"))):
            wrong(page, f"names {target}, which does not exist")


@functools.cache
def tests():
    """As `Suite.Name`, those of GoogleTest."""
    return {f"{suite}.{name}" for source in root.glob("tests/**/*.cpp")
            for suite, name in re.findall(r"^TEST\w*\((\w+),\s*(\w+)[,)]", source.read_text(),
                                          re.M)}


def check_tests(page, text):
    for name in re.findall(r"`([A-Z][A-Za-z0-9]+\.[A-Z][A-Za-z0-9]+)`", text):
        if name not in tests():
            wrong(page, f"names the test {name}, which does not exist")


def check_quotations(page, text):
    """A block of C++ (or the new side of a diff) right after a paragraph that names source files
    and ends with a colon stands in one of them."""
    for paragraph, kind, block in re.findall(
            r"((?:[^\n`]|`[^`\n]+`|\n(?!\n|```))+)\n\n```(cpp|diff)\n(.*?)```", text, re.S):
        files = [root / f for f in PATH.findall(paragraph) if f.endswith((".cpp", ".hpp"))]
        quoted = block if kind == "cpp" else "".join(
            line[1:] + "\n" for line in block.splitlines() if not line.startswith("-"))
        if (files and paragraph.endswith(":")
            and not any(quoted.strip() in f.read_text() for f in files if f.exists())):
            wrong(page, f"quotes {files[0].relative_to(root)}, which reads otherwise now")


def check_citations(source):
    """A page (NAME.md, docs/NAME.md) that a source names is in its folder or at its place in the
    tree; paths elsewhere are not ours."""
    for number, line in enumerate(source.read_text().splitlines(), 1):
        for target in re.findall(r"(?<![\w./-])((?:docs/|tests/|bench/)?[A-Za-z0-9_-]+\.md)\b",
                                 line):
            if not any((folder / target).exists() for folder in (root, source.parent)):
                problems.append(
                    f"{source.relative_to(root)}:{number}: names {target}, which does not exist")


def check_builds(page, text):
    """A line or row with a command that builds says for how many minutes; pip shows how far it
    is."""
    for line in re.findall(r"^(?:\||tools/setup|pip|make) ?.*", text, re.M):
        installs = re.search(r"pip install (?:.* )?(?:\.|\./python/torch)(?=[\s`]|$)", line)
        if ((installs or re.search(r"(?:^|`)make (?:demo|test|build|core-only)\b", line))
            and "minutes" not in line):
            wrong(page, f"expected how many minutes this builds for, found: {line}")
        if installs and " -v " not in installs[0]:
            wrong(page, f"pip is silent for minutes; expected pip install -v, found: {line}")


@functools.cache
def help_of(*command):
    """What --help prints; None for a verb of linerate-torch if that program was not built."""
    run = subprocess.run([*command, "--help"], capture_output=True, text=True)
    return None if "build with LibTorch" in run.stderr else run.stdout


def check_commands(page, text, linerate):
    """Every `linerate VERB --option` in a code block: the verb's --help must name the option."""
    for block in re.findall(r"```(?:sh|console|text)?\n(.*?)```", text, re.S):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            call = re.match(r"\$?\s*(?:tools/mpirun.*?\s|[^ ]*/)?(?:build/release/)?linerate "
                            r"([a-z-]+)(.*)", line.strip())
            if not call or (help_text := help_of(linerate, call[1])) is None:
                continue
            sub_verb = re.match(r"\s+([a-z][a-z-]*)(?:\s|$)", call[2])
            if sub_verb and re.search(rf"^  {sub_verb[1]}\b",
                                      help_text.partition("Subcommands:")[2], re.M):
                help_text += help_of(linerate, call[1], sub_verb[1])
            if not help_text:
                wrong(page, f"linerate has no verb {call[1]}")
            for option in re.findall(r"\s(--[a-z][a-z-]*)", call[2].split("|")[0]):
                if option not in help_text and option != "--help":
                    wrong(page, f"linerate {call[1]} has no option {option}")


pages = [p for folder in ("", "docs/**/", "src/**/", "tests/**/", "bench/**/", "examples/**/")
         for p in root.glob(f"{folder}*.md")]
for page in pages:
    content = page.read_text()
    check_paths(page, content)
    check_quotations(page, content)
    check_tests(page, content)
    if page.parent == root / "docs" or page.name == "README.md" and page.parent == root:
        check_builds(page, content)
    if len(sys.argv) > 1:
        check_commands(page, content, sys.argv[1])
sources = [p for folder in ("include", "src", "tests", "bench", "tools", "cmake", "examples")
           for p in root.glob(f"{folder}/**/*") if p.suffix
           in (".cpp", ".hpp", ".py", ".cmake", ".sh") and p != Path(__file__).resolve()]
for source in sources:
    check_citations(source)
print("\n".join(problems) or f"{len(pages)} pages, every path and option exists")
sys.exit(min(len(problems), 99))
