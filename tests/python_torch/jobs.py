"""Starts ranks with torchrun and reads what they print."""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def torchrun(ranks, program, *arguments, timeout=240, **environment):
    """(exit status, output) of a job."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--monitor-interval", "2", "--nproc-per-node", str(ranks), str(program), *arguments]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, text=True, timeout=timeout,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def passed(output, name):
    """Ranks on which a use is right."""
    return len(re.findall(rf"rank \d+: use {name}: ok", output))
