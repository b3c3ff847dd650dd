#!/usr/bin/env python3
"""Programs that end in the middle of something: run on every rank of a torchrun job.

usage: torchrun --nproc-per-node N ends.py NAME [FOLDER]      (FOLDER: empty; in it ranks say that
                                                              they have reported)
"""
import os
import pathlib
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import linerate.torch as lt


def trained(strategy="ddp", steps=3, timeout=60):
    # the ranks may start far apart on a busy machine: that is not what is tried
    dist.init_process_group("gloo")
    lt.init(timeout=timeout)
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 5))
    dp = lt.DataParallel(model, strategy=strategy, most_above_ddp=float("inf"))
    opt = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(steps):
        step(dp, opt)
    print(f"rank {dist.get_rank()}: trained", flush=True)
    return model, dp, opt


def step(dp, opt):
    dp(torch.randn(8, 10)).square().mean().backward()
    dp.step(opt)


def reported(dp, opt):
    """Steps until an error ends them, which must come on this rank."""
    # torchrun's, as soon as it sees that another rank is gone
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        while True:
            step(dp, opt)
    except lt.CommError as e:
        print(f"rank {dist.get_rank()}: CommError: {e}", flush=True)
        if len(sys.argv) > 2:
            (pathlib.Path(sys.argv[2]) / f"rank {dist.get_rank()}").touch()
        raise


def all_others_reported():
    """A shell's condition."""
    return f'[ $(ls "{sys.argv[2]}" | wc -l) -ge {dist.get_world_size() - 1} ]'


def exception_in_forward():
    model, dp, opt = trained()
    if dist.get_rank() == 1:
        model.register_forward_hook(
            lambda *_: (_ for _ in ()).throw(ValueError("a batch without samples")))
    reported(dp, opt)


def set_batch_on_one_rank():
    model, dp, opt = trained(sys.argv[3])
    if dist.get_rank() == 1:
        dp.set_batch(8)
    reported(dp, opt)


def exit_without_settle():
    model, dp, opt = trained("dear")
    step(dp, opt)


def killed():
    model, dp, opt = trained(timeout=5)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    reported(dp, opt)


def stopped():
    model, dp, opt = trained(timeout=3)
    if dist.get_rank() == 1:
        # So that torchrun can end it.
        subprocess.Popen(["sh", "-c", f"until {all_others_reported()}; do sleep 0.2; done; kill "
                                      f"-CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    reported(dp, opt)


def late():
    model, dp, opt = trained(timeout=3)
    if dist.get_rank() == 1:
        while subprocess.run(["sh", "-c", all_others_reported()]).returncode != 0:
            time.sleep(0.2)
    reported(dp, opt)


def interrupted():
    model, dp, opt = trained()
    if dist.get_rank() == 0:
        print("ready for Ctrl-C", flush=True)
    while True:
        step(dp, opt)


def group_destroyed():
    """As most programs that used DDP end, with updates under way."""
    model, dp, opt = trained("dear")
    step(dp, opt)
    dist.destroy_process_group()


def _one_of_spawned(rank, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    model, dp, opt = trained("dear")
    step(dp, opt)
    dp.settle()
    dp.require_same_weights()
    print(f"rank {rank}: settled", flush=True)


def spawned():
    """Ranks that torch.multiprocessing starts; such processes end without Python's atexit."""
    import socket
    import torch.multiprocessing
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(_one_of_spawned, (port,), nprocs=2)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
