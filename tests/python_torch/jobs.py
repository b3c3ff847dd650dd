"""Starts ranks with torchrun and reads what they print."""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "SLURM_", "OMPI_", "PMI")


def environment(**more):
    """Without what a launcher of this test has set."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def run(*command, timeout=120, **more):
    """A program to its end, with all that it prints as its stdout."""
    return subprocess.run(command, text=True, timeout=timeout, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **more)


def torchrun(ranks, program, *arguments, timeout=480, **environment):
    """(exit status, output) of a job. One that is not over in time is ended with its ranks: 124, as
    of timeout(1)."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--monitor-interval",
               "2", "--nproc-per-node", str(ranks), str(program), *arguments]
    job = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                           text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = job.communicate(timeout=timeout)
        return job.returncode, output
    except subprocess.TimeoutExpired:
        job.terminate()  # the launcher ends its ranks
        return 124, job.communicate()[0] + f"\nnot over after {timeout} s"


def passed(output, name):
    """Ranks on which a use is right."""
    return len(re.findall(rf"rank \d+: use {name}: ok", output))


def names_of_uses():
    return [name for file in sorted(HERE.glob("uses*.py"))
            for name in re.findall(r"^@use(?:_of_steps\(.*\))?\ndef (\w+)", file.read_text(), re.M)]
