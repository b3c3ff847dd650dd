"""uses.py on 2 and 3 ranks: a job for each, a test for each use."""
import functools
import re

import pytest
from jobs import HERE, passed, torchrun

NAMES = [n for f in sorted(HERE.glob("uses*.py"))
         for n in re.findall(r"^@use\ndef (\w+)", f.read_text(), re.MULTILINE)]


@functools.cache
def job(ranks):
    return torchrun(ranks, HERE / "uses.py")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranks", (2, 3))
def test_use(ranks, name):
    _, output = job(ranks)
    # A use that fails ends the job, since its ranks are no longer in step: the first one is the one
    # to look at.
    assert passed(output, name) == ranks, output[-6000:]


@pytest.mark.parametrize("ranks", (2, 3))
def test_job_ends_well(ranks):
    status, output = job(ranks)
    assert status == 0, output[-3000:]
