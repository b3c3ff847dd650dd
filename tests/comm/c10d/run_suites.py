#!/usr/bin/env python3
"""Runs the conformance suites over gloo, on every rank of a job of its own.

usage: run_suites.py RANKS LIBRARY FILTER [JOBS]

Ranks are forked once torch is imported, which takes a second: torchrun would import it in each, and
in itself. Each test has a process group of its own, since none works on after its run has ended.
JOBS: as many jobs, one after the other, share out the tests: gloo polls without a pause for a
message that nobody receives any more, as long as the process lives.
"""
import ctypes
import os
import signal
import socket
import sys
import traceback

import torch.distributed as dist

RANKS, LIBRARY, FILTER = int(sys.argv[1]), *sys.argv[2:4]
JOBS = int(sys.argv[4]) if len(sys.argv) > 4 else 1
HOST = "127.0.0.1"


def run_suites(rank, port):
    """A rank's process; returns its exit status."""
    os.environ["RANK"] = str(rank)
    store = dist.TCPStore(HOST, port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    groups = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p)
    def new_group():
        dist.barrier()  # whoever fails alone holds up the others here
        group = dist.new_group(backend="gloo")
        groups.append((group, ctypes.create_string_buffer(group.group_name.encode())))
        return ctypes.addressof(groups[-1][1])

    failed = ctypes.CDLL(LIBRARY).linerate_run_suites(new_group, FILTER.encode())
    print(f"rank {rank}: suites {'FAILED' if failed else 'passed'}", flush=True)
    return 1 if failed else 0


def fork_rank(rank, port):
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        status = run_suites(rank, port)
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(status)  # groups whose run has ended are not waited for


def run_job():
    """Whether every rank succeeded."""
    # The store outlives every rank, so this process serves it.
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        ranks = {fork_rank(rank, port) for rank in range(RANKS)}
        store = dist.TCPStore(HOST, port, is_master=True, wait_for_workers=False,
                              master_listen_fd=server.detach())
    while ranks:
        process, status = os.wait()
        ranks.discard(process)
        if status:
            for other in ranks:  # they would wait for it
                os.kill(other, signal.SIGKILL)
            return False
    del store
    return True


def main():
    os.environ["GTEST_TOTAL_SHARDS"] = str(JOBS)
    for job in range(JOBS):
        os.environ["GTEST_SHARD_INDEX"] = str(job)
        if not run_job():
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
