"""tools/gpu-lab kit, stage ends: what a user sees when a rank is gone.

usage: gpu_ends.py DEVICE [CASE ...]     under tools/gpu-lab run

A case is a strategy, or DDP, and how the last rank ends in the middle of training: killed (SIGKILL)
or raises (an exception). Each rank of this program forks the rank that trains and outlives it. For
each case rank 0 says how long after the last whole step its own ended, with which status, whether
what it said names the rank that is gone, and its last lines.
"""
import os
import re
import select
import signal
import sys
import time

import torch  # before ranks are forked, once for all cases; linerate.torch and CUDA begin in each
import torch.distributed as dist
from contenders import SETS, NotHere, linerate
from peers_rank import Training, device_of

CASES = ("linerate ddp: raises", "linerate ddp: killed", "DDP: killed", "linerate dear: killed")
STEPS, LINES = 8, 6
SILENCE_S = {"cuda": 25, "cpu": 120}  # after which a rank hangs; processors may be busy


def train(device_name, name, end):
    """What is forked: DDP or a strategy trains, and the last rank ends before its last step but
    one."""
    job = {"model": "tiny", "batch": 8, "lr": 0.01, "device": device_name}
    device = device_of(job)
    try:
        linerate().init(timeout=SILENCE_S[device_name] / 2)
    except NotHere:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    training = Training(SETS["gpus"][name], job, device)
    for s in range(STEPS):
        if s == STEPS - 2 and dist.get_rank() == dist.get_world_size() - 1:
            if end == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("a batch without samples")
        training.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        print(f"step {s} done at {time.monotonic():.3f}", flush=True)


def read_all(pipe, process, silence_s):
    """What comes out of a pipe until its end; the process is killed if it says nothing for so
    long."""
    said = b""
    while True:
        if not select.select([pipe], [], [], silence_s)[0]:
            os.kill(process, signal.SIGKILL)
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return said.decode(errors="replace")
        said += piece


def forked(port, silence_s):
    """None in the process that trains; (exit status, when it ended, what it said) in the one that
    watches."""
    pipe, end = os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(end, 1)
        os.dup2(end, 2)
        os.close(end)
        os.environ["MASTER_PORT"] = str(port)
        return None
    os.close(end)
    said = read_all(pipe, process, silence_s)
    os.close(pipe)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic(), said


def words_of(case, status, ended, said, gone):
    """(the case's lines, whether it trained and then failed)"""
    lines = [line for line in said.splitlines() if line.strip()]
    steps = re.findall(r"^step \d+ done at (.*)", said, re.MULTILINE)
    after = (f"{ended - float(steps[-1]):.1f} s after its last whole step"
             if steps else "before its first whole step")
    last = [line[:300] for line in lines if not line.startswith("step ")][-LINES:]
    names = "names" if any(f"rank {gone}" in line for line in lines) else "does not name"
    end = f"status {status}" if status >= 0 else signal.Signals(-status).name
    return [f"{case:26} rank 0: {end}, {after}; it {names} rank {gone}; its last lines:",
            *(f"    {line}" for line in last)], bool(steps) and status != 0


def main():
    device, cases, bad = sys.argv[1], sys.argv[2:] or CASES, 0
    for i, case in enumerate(cases):
        watched = forked(int(os.environ["MASTER_PORT"]) + 1 + i, SILENCE_S[device])
        if watched is None:  # an exception ends the process as that of a program
            return train(device, *case.split(": "))
        lines, is_right = words_of(case, *watched, int(os.environ["WORLD_SIZE"]) - 1)
        if os.environ["RANK"] == "0":
            bad += not is_right
            print("\n".join(lines), flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
