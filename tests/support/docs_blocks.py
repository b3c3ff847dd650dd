"""The blocks of Python in documents, and what runs each: tests/python/test_docs.py and
test_profile.py, tests/python_torch/test_docs.py.

A block that nothing runs says why, in a comment right above it:
<!-- not run: it needs a GPU -->
"""
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"(?P<above>[^\n]*)\n(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^ *```",
                   re.S | re.M)
MARKER = re.compile(r"<!-- not run:(?P<reason>.*?)-->$")
LOOKS_LIKE_PYTHON = re.compile(r"^(>>> |import \w+|from [\w.]+ import )", re.M)


class Block(NamedTuple):
    where: str  # page and line
    runs: str  # session, profile, analysis or torch; "" if it is not run
    code: str


def kind(code):
    if ">>> " in code:
        return "session"
    if "linerate.profile(" in code:
        return "profile"
    return "analysis" if re.search(r"^import linerate$", code, re.M) else "torch"


def blocks_of(text, page):
    for found in FENCE.finditer("\n" + text):
        where = f"{page}:{text.count(chr(10), 0, found.start('code') - 1) + 1}"
        if found["language"] != "python":
            assert not LOOKS_LIKE_PYTHON.search(found["code"]), (
                f"{where}: a block of Python is labelled ```python, not ```{found['language']}")
            continue
        marker = MARKER.search(found["above"])
        assert not marker or len(marker["reason"].split()) > 1, (
            f"{where}: says that it is not run; expected a reason")
        code = re.sub(rf"^{found['indent']}", "", found["code"], flags=re.M)
        yield Block(where, "" if marker else kind(code), code)


def blocks(runs):
    """Those that one of the tests runs."""
    pages = [p for p in sorted(ROOT.glob("**/*.md"))
             if not {"build", ".venv"} & set(p.relative_to(ROOT).parts)]
    return [b for page in pages for b in blocks_of(page.read_text(), page.relative_to(ROOT))
            if b.runs == runs]
