#!/usr/bin/env python3
"""A rank of test_gpu_lab.py, on shaped links that other connections keep full in both directions,
as NCCL's do."""
import os
import socket
import statistics
import subprocess
import threading
import time

import torch
import torch.distributed as dist

import linerate.torch as lt
from linerate.torch import _world

CONNECTIONS, PORT = 8, 29777


def connections():
    if lt.rank() == 0:
        listener = socket.create_server(("", PORT))
        dist.barrier()
        return [listener.accept()[0] for _ in range(CONNECTIONS)]
    dist.barrier()
    return [socket.create_connection((os.environ["MASTER_ADDR"], PORT)) for _ in range(CONNECTIONS)]


def send(connection):
    while True:
        connection.sendall(b"x" * (1 << 18))


def receive(connection):
    while connection.recv(1 << 20):
        pass


def milliseconds(world):
    times = []
    for _ in range(20):
        start = time.monotonic()
        world.require_same("flags", ["a few bytes"])
        times.append(1e3 * (time.monotonic() - start))
    return statistics.median(times)


lt.init(timeout=60)
if "htb" not in subprocess.run(["tc", "qdisc", "show", "dev", "eth0"], capture_output=True,
                               text=True).stdout:
    print("one queue for all: this kernel has no htb or no u32")
world = _world.world_of(None)
for i, one in enumerate(connections()):
    threading.Thread(target=send if (i + lt.rank()) % 2 else receive, args=(one,),
                     daemon=True).start()
time.sleep(2)
before = milliseconds(world)
model = torch.nn.Linear(2, 2)
parallel = lt.DataParallel(model, device_group=dist.group.WORLD)
after = milliseconds(world)
if lt.rank() == 0:
    print(f"before {before:.1f} ms, after {after:.1f} ms", flush=True)
world.require_same("end", ["of both"])
os._exit(0)
