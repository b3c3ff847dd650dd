"""Blocks of Python in documents run, on two ranks of one job."""
import os
import sys

import pytest
from jobs import HERE, passed, torchrun

SUPPORT = HERE.parent / "support"
sys.path.insert(0, str(SUPPORT))
import docs_blocks  # noqa: E402

BLOCKS = [b.where for b in docs_blocks.blocks("torch")]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("docs"))  # where blocks write
    try:
        return torchrun(2, HERE / "docs.py", PYTHONPATH=str(SUPPORT))
    finally:
        os.chdir(before)


@pytest.mark.parametrize("where", BLOCKS)
def test_block_runs(job, where):
    # A block that fails ends the job: the first one is the one to look at.
    assert passed(job[1], where) == 2, job[1][-4000:]


def test_job_ends_well(job):
    assert job[0] == 0 and len(BLOCKS) > 5, job[1][-3000:]


def test_blocks_are_found_and_markers_have_reasons():
    text = ("\n```python\nimport linerate\n```\n<!-- not run: it needs a GPU -->\n```python\nx\n"
            "```\n\n```\n$ ls\n```\n```python\nlt.init()\n```\n")
    assert [(b.where, b.runs) for b in docs_blocks.blocks_of(text, "p")] == [(
        "p:3", "analysis"), ("p:7", ""), ("p:14", "torch")]
    for wrong in ("<!-- not run: -->\n```python\nx\n```\n", "\n```\nimport torch\n```\n",
                  "\n```py\nimport torch\n```\n"):
        with pytest.raises(AssertionError):
            list(docs_blocks.blocks_of(wrong, "p"))
