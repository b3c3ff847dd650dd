"""How a job ends when one rank cannot go on: every other rank gets an error that names it, and none
hangs."""
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from jobs import HERE, run, torchrun

REASONS = {"exception_in_forward": "rank 1 ended the run: ValueError: a batch without samples",
           "killed": "rank 1", "stopped": "rank 1 gave no sign of life", "late": "rank 1 is late"}


def error(output, rank):
    """What it says; ranks may share a line."""
    found = re.search(rf"rank {rank}: CommError: (.*)", output)
    return found[1] if found else ""


@pytest.mark.parametrize("name", REASONS)
def test_other_ranks_hear_who(name, tmp_path):
    status, output = torchrun(3, HERE / "ends.py", name, str(tmp_path))
    assert status != 0, output[-3000:]
    assert output.count(": trained") == 3, output[-3000:]
    assert all(REASONS[name] in error(output, rank) for rank in (0, 2)), output[-4000:]


@pytest.mark.parametrize("strategy", ("bulk", "ddp", "dear"))
def test_set_batch_on_one_rank_is_named_on_every_rank(strategy, tmp_path):
    """The gradients of that step would be of two weights: no rank may take it, nor wait for
    ever."""
    status, output = torchrun(3, HERE / "ends.py", "set_batch_on_one_rank", str(tmp_path), strategy)
    assert status != 0, output[-3000:]
    for rank in range(3):
        says = error(output, rank)
        assert "step 3: all-reduce samples" in says and "rank 1" in says, output[-4000:]


@pytest.mark.parametrize("name", ("exit_without_settle", "group_destroyed"))
def test_ends_before_its_updates_are_done(name):
    status, output = torchrun(2, HERE / "ends.py", name)
    assert status == 0 and "Traceback" not in output and "Error" not in output, output[-3000:]
    assert output.count("it is done now. Call settle()") == 2, output[-3000:]


def test_spawned_ranks():
    done = run(sys.executable, HERE / "ends.py", "spawned",
               env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0 and "Traceback" not in done.stdout, done.stdout
    assert done.stdout.count(": settled") == 2, done.stdout


def test_ctrl_c():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               "2", str(HERE / "ends.py"), "interrupted"]
    job = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        for line in job.stdout:
            if "ready for Ctrl-C" in line:
                break
        time.sleep(0.5)
        os.killpg(job.pid, signal.SIGINT)
        output, _ = job.communicate(timeout=120)
        assert "KeyboardInterrupt" in output or "SIGINT" in output, output[-3000:]
        assert job.returncode != 0
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
