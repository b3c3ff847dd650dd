"""on_simulated_devices.py on two ranks, a simulated device each."""
import functools
import re
import sys

import pytest
from jobs import HERE, passed, torchrun

PROGRAM = HERE / "on_simulated_devices.py"
LIBRARY = (HERE.parents[1]
           / f"build/python-torch-{sys.implementation.cache_tag}/tests/libsimulated_device.so")
STRATEGIES = re.findall(r'"([^"]+)"',
                        re.search(r"^STRATEGIES = (.*)$", PROGRAM.read_text(), re.MULTILINE)[1])


@functools.cache
def job():
    assert LIBRARY.exists(), f"{LIBRARY} is not built: tools/python-torch test builds it"
    return torchrun(2, PROGRAM, LIBRARY)


@pytest.mark.parametrize("strategy", (*STRATEGIES, "ddp with overflows", "dear with overflows"))
def test_trains_as_on_the_cpu(strategy):
    _, output = job()
    assert passed(output, re.escape(strategy)) == 2, output[-6000:]


def test_job_ends_well():
    status, output = job()
    assert status == 0, output[-3000:]
