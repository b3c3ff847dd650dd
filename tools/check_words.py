#!/usr/bin/env python3
"""Checks comments, messages, help and documents against tools/words.toml. Each word (a regular
expression) that has a better one is used at most as often as its line allows. The pages of docs
together have at most so many words, and so has each sentence of docs, CONTRIBUTING and the READMEs
of the project, of bench, of src and of tests.

Usage: check_words.py             says which words are used too often, which sentences are too long,
                                  and where; exit status: the number of problems, at most 99
       check_words.py WORD        lists every place that uses it, for a sweep
       check_words.py --counts    prints each word with its count and what is allowed
"""
import re
import sys
import tomllib
from pathlib import Path

root = Path(__file__).resolve().parent.parent
limits = tomllib.loads((root / "tools/words.toml").read_text())
words = limits["word"]
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


def sentences_of(text):
    """(line, sentence) of a page's paragraphs and items of lists, not of tables, headings, code."""
    paragraph, begun, fenced = [], 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if re.match(r"\s*(```|~~~)", line):
            fenced, line = not fenced, ""
        ends = fenced or not line.strip() or re.match(r"\s*(\||#|<|[-*+] |\d+[.)] )|    ", line)
        if paragraph and ends:
            yield from split_sentences(paragraph, begun)
            paragraph = []
        if not fenced and line.strip() and not re.match(r"\s*(\||#|<)|    ", line):
            begun = begun if paragraph else number
            paragraph.append(line)


def split_sentences(lines, number):
    """(line, sentence) of a paragraph that begins at that line."""
    text, begun = re.sub(r"^\s*([-*+]|\d+[.)]) ", "", "\n".join(lines)), 0
    for end in [*re.finditer(r"(?<=[.!?])\s+|\Z", text)]:
        if text[begun:end.start()].strip():
            yield number + text.count("\n", 0, begun), " ".join(text[begun:end.start()].split())
        begun = end.end()


def words_of(sentence):
    """How many words it has; a piece of code is one, a link's address none."""
    return len(re.sub(r"`[^`]*`", "X", sentence).split())


def problems_of_sentences(page, text):
    most = limits["pages"]["words_of_a_sentence_at_most"]
    for number, sentence in sentences_of(text):
        if words_of(sentence) > most:
            yield (f"{page}:{number}: a sentence of {words_of(sentence)} words, expected at most "
                   f"{most}; split it, one fact a sentence: {sentence}")


def problems_of_length(pages):
    """pages: {page: text} of docs."""
    most = limits["pages"]["words_at_most"]
    count = {page: len(text.split()) for page, text in pages.items()}
    if (total := sum(count.values())) > most:
        longest = sorted(count, key=count.get, reverse=True)[:5]
        yield (f"docs: {total} words together, expected at most {most}; cut {total - most}, first "
               "what another page says, too. The longest pages: "
               + ", ".join(f"{page} {count[page]}" for page in longest))


def main():
    files = [p for pattern in ("include/**/*.hpp", "src/**/*.[ch]pp", "docs/**/*.md", "src/**/*.md",
                               "tests/*.md", "bench/*.md", "examples/**/*.md")
             for p in root.glob(pattern)] + [root / "README.md", root / "CONTRIBUTING.md"]
    files.remove(root / "docs/glossary.md")  # it names what is not said
    pages = {p: prose_of(p.read_text(), p.suffix) for p in sorted(files)}
    if len(sys.argv) > 1 and sys.argv[1] != "--counts":
        print("\n".join(places_of(sys.argv[1], pages)))
        return 0
    prose = {p.relative_to(root): p.read_text()
             for pattern in ("docs/**/*.md", "bench/*.md", "examples/**/*.md", "src/**/*.md",
                             "tests/**/*.md", "README.md", "CONTRIBUTING.md")
             for p in sorted(root.glob(pattern))}
    docs = {p: text for p, text in prose.items() if p.parts[0] == "docs"}
    said = [] if "--counts" in sys.argv else [
        *problems_of_length(docs),
        *(s for page, text in prose.items() for s in problems_of_sentences(page, text))]
    print("\n".join(said), end="\n" if said else "")
    problems = len(said)
    for entry in words:
        uses = sum(len(lines_with(entry["word"], text)) for text in pages.values())
        if "--counts" in sys.argv:
            print(f"{uses:5} of {entry['at_most']:5}  {entry['word']}")
        elif uses > entry["at_most"]:
            problems += 1
            print(f"'{entry['word']}' is used {uses} times, at most {entry['at_most']} are "
                  f"allowed; say {entry['say']}. tools/check_words.py '{entry['word']}' lists them")
    if not problems and "--counts" not in sys.argv:
        print(f"{len(pages)} files, {len(words)} words; "
              f"{sum(len(text.split()) for text in docs.values())} words in docs")
    return min(problems, 99)


if __name__ == "__main__":
    sys.exit(main())
