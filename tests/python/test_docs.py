"""docs/python.md: what its sessions show is what Python prints."""

import doctest
import os

from conftest import ROOT


def test_sessions_print_what_they_show(tmp_path):
    (tmp_path / "traces").symlink_to(ROOT / "tests/trace/fixtures")
    (tmp_path / "recorded").symlink_to(ROOT / "tests/calibrate/recorded")
    text = "\n".join(line for line in (ROOT / "docs/python.md").read_text().splitlines() if not line.startswith("```"))
    test = doctest.DocTestParser().get_doctest(text, {}, "python", "docs/python.md", 0)
    assert len(test.examples) > 20
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test)
    finally:
        os.chdir(before)
    assert result.failed == 0
