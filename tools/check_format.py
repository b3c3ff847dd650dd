#!/usr/bin/env python3
"""Checks that lines of texts that people write have at most 100 columns, and that every C++ file is
exactly what clang-format prints. Exit status 1 if a file is to be mended; 77 (skipped) if none is,
but clang-format is absent.

A line may be longer if it is a row of a table, if it is only because of an address, or if it shows
what a program printed: in Markdown a block of no language, in C++ a raw string of several lines.
Files of data and transcripts (tests/cli) have the lines that programs wrote.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
COLUMNS = 100
SUFFIXES = {".md", ".cpp", ".hpp", ".in", ".py", ".cmake", ".sh", ".js", ".css", ".toml", ".supp",
            ".sbatch"}
NAMES = {"CMakeLists.txt", "Makefile", "Doxyfile", ".clang-format", ".gitignore"}
ADDRESS = re.compile(r"(?<=\])\([^)\s]*\)|https?://\S+")
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.S)


def is_written(path):
    """Whether people write it: by its name, or a script, by its first line."""
    if path.suffix in SUFFIXES or path.name in NAMES:
        return True
    with path.open("rb") as file:
        return not path.suffix and file.read(2) == b"#!"


def shown_of_page(lines):
    """Numbers of the lines of a page that are tables or show what a program printed."""
    language = None
    for number, line in enumerate(lines, 1):
        if fence := re.match(r"\s*```(\w*)", line):
            language = fence[1] if language is None else None
        elif line.lstrip().startswith("|") or language in ("", "text", "console"):
            yield number


def shown_of_source(text):
    """Numbers of the lines of a C++ file that lie in raw strings of several lines."""
    for found in RAW_STRING.finditer(text):
        if "\n" in found[0]:
            first = text.count("\n", 0, found.start()) + 1
            yield from range(first, first + found[0].count("\n") + 1)


def too_long(name, text):
    """[(line, columns)] of the lines that are too long, of a file of that name."""
    lines = text.split("\n")
    long = [(n, len(line)) for n, line in enumerate(lines, 1) if len(line) > COLUMNS]
    long = [(n, columns) for n, columns in long if len(ADDRESS.sub("", lines[n - 1])) > COLUMNS]
    shown = set()
    if long and name.endswith(".md"):
        shown = set(shown_of_page(lines))
    elif long and name.endswith((".cpp", ".hpp")):
        shown = set(shown_of_source(text))
    return [(n, columns) for n, columns in long if n not in shown]


def written_files():
    """What git has of them."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    files = [root / name for name in tracked.stdout.split("\0") if name]
    return [p for p in files if p.is_file() and not p.is_symlink() and is_written(p)]


def check_columns():
    """How many lines are too long; says which."""
    files = written_files()
    count = 0 if files else 1  # without git nothing is looked at, which is no success
    for path in files:
        for number, columns in too_long(path.name, path.read_text()):
            count += 1
            print(f"{path.relative_to(root)}:{number}: expected at most {COLUMNS} columns, found "
                  f"{columns}; break the line")
    print(f"{len(files)} files, {count} lines of more than {COLUMNS} columns")
    return count


def check_clang_format(tool):
    """How many C++ files are to be formatted; says which."""
    files = [p for folder in ("include", "src", "tests", "bench", "examples")
             for p in (root / folder).rglob("*.[ch]pp")]
    result = subprocess.run([tool, "--dry-run", "--Werror", *map(str, files)], capture_output=True,
                            text=True, cwd=root)
    wrong = sorted({line.split(":")[0] for line in result.stderr.splitlines()
                    if ": error:" in line})
    for name in wrong:
        print(f"{Path(name).relative_to(root) if name.startswith('/') else name}: "
              "run `make format`")
    print(f"{len(files)} files, {len(wrong)} to format")
    return len(wrong) if result.returncode == 0 or wrong else 1


def main():
    problems = check_columns()
    tool = shutil.which("clang-format-14")
    if tool:
        problems += check_clang_format(tool)
    else:
        print("skipped: clang-format-14 is not installed (tools/setup installs it)")
    return 1 if problems else 0 if tool else 77


if __name__ == "__main__":
    sys.exit(main())
