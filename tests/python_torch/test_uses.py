"""uses.py on 2 and 3 ranks: a job for each, a test for each use."""
import functools

import pytest
from jobs import HERE, names_of_uses, passed, torchrun


@functools.cache
def job(ranks):
    return torchrun(ranks, HERE / "uses.py")


@pytest.mark.parametrize("name", names_of_uses())
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
