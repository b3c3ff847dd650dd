"""Documents: what their sessions show is what Python prints, and their programs of the analysis
run."""

import doctest
import sys
import textwrap

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
import docs_blocks  # noqa: E402


def pages_with_sessions():
    return sorted({block.where.rpartition(":")[0] for block in docs_blocks.blocks("session")})


@pytest.mark.parametrize("page", pages_with_sessions())
def test_sessions_print_what_they_show(page, tmp_path, monkeypatch):
    (tmp_path / "traces").symlink_to(ROOT / "tests/trace/fixtures")
    (tmp_path / "recorded").symlink_to(ROOT / "tests/calibrate/recorded")
    text = "\n".join(line for line in (ROOT / page).read_text().splitlines()
                     if not line.startswith("```"))
    test = doctest.DocTestParser().get_doctest(text, {}, "python", page, 0)
    assert len(test.examples) > 20
    monkeypatch.chdir(tmp_path)
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS
                                 | doctest.NORMALIZE_WHITESPACE).run(test).failed == 0


@pytest.mark.parametrize("block", docs_blocks.blocks("analysis"), ids=lambda block: block.where)
def test_programs_run_in_the_checkout(block, tmp_path, monkeypatch):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    exec(compile(block.code, block.where, "exec"), {})


@pytest.mark.parametrize("block", docs_blocks.blocks("profile"), ids=lambda block: block.where)
def test_programs_that_record_run(block, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")  # tools/python-package runs this file where it is, too
    import linerate

    model = torch.nn.Linear(8, 8)
    monkeypatch.chdir(tmp_path)
    exec(compile(textwrap.dedent(block.code), block.where, "exec"),
         {"linerate": linerate, "loader": [torch.randn(4, 8)] * 20,
          "train": lambda batch: model(batch).sum().backward()})
    assert list(tmp_path.glob("traces/rank*.json.gz"))
