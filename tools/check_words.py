#!/usr/bin/env python3
"""Checks the words of comments, messages, help and documents against tools/words.toml: each word (a
regular expression) that has a better one is used at most as often as its line allows.

Usage: check_words.py                 says which words are used too often, and where; exit status:
                                      their number
       check_words.py WORD            lists every place that uses it, for a sweep
       check_words.py --counts        prints each word with its count and what is allowed
"""
import re
import sys
import tomllib
from pathlib import Path

root = Path(__file__).resolve().parent.parent
words = tomllib.loads((root / "tools/words.toml").read_text())["word"]
# What of C++ people read: comments and strings. Code between them is skipped, a character in quotes
# is no string.
PROSE = re.compile(
    r"""(//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*")|'(?:[^'\\\n]|\\[^\n]{1,8})'|#include[^\n]*""",
    re.S)


def prose_of(text, suffix):
    """A file's text with everything but its prose blanked, so that places stay."""
    if suffix == ".md":
        return re.sub(r"```.*?```|`[^`\n]*`", lambda m: re.sub(r"[^\n]", " ", m[0]), text,
                      flags=re.S)
    blank, end = [], 0
    for match in PROSE.finditer(text):
        start = match.start() if match[1] else match.end()
        blank.append(re.sub(r"[^\n]", " ", text[end:start]) + text[start:match.end()])
        end = match.end()
    return "".join(blank)


def lines_with(word, text):
    """The number of the line of each use, in any case, also if a line ends between its words."""
    pattern = re.compile(r"\b" + word.replace(" ", r"(?:\s|//|/)+") + r"\b", re.I)
    return [text.count("\n", 0, match.start()) + 1 for match in pattern.finditer(text)]


def places_of(word, pages):
    """"file:line: the line" of each use."""
    for path, text in pages.items():
        for number in lines_with(word, text):
            yield (f"{path.relative_to(root)}:{number}: "
                   f"{path.read_text().splitlines()[number - 1].strip()}")


def main():
    files = [p for pattern in ("include/**/*.hpp", "src/**/*.[ch]pp", "docs/**/*.md", "src/**/*.md",
                               "tests/*.md", "bench/*.md", "examples/**/*.md")
             for p in root.glob(pattern)] + [root / "README.md", root / "CONTRIBUTING.md"]
    files.remove(root / "docs/glossary.md")  # it names what is not said
    pages = {p: prose_of(p.read_text(), p.suffix) for p in sorted(files)}
    if len(sys.argv) > 1 and sys.argv[1] != "--counts":
        print("\n".join(places_of(sys.argv[1], pages)))
        return 0
    problems = 0
    for entry in words:
        uses = sum(len(lines_with(entry["word"], text)) for text in pages.values())
        if "--counts" in sys.argv:
            print(f"{uses:5} of {entry['at_most']:5}  {entry['word']}")
        elif uses > entry["at_most"]:
            problems += 1
            print(f"'{entry['word']}' is used {uses} times, at most {entry['at_most']} are "
                  f"allowed; say {entry['say']}. tools/check_words.py '{entry['word']}' lists them")
    if not problems and "--counts" not in sys.argv:
        print(f"{len(pages)} files, {len(words)} words")
    return problems


if __name__ == "__main__":
    sys.exit(main())
