#!/usr/bin/env python3
"""Runs the conformance suites over gloo, on every rank of a job that torchrun starts.

usage: torchrun --nproc-per-node N run_suites.py LIBRARY FILTER

Each test has a process group of its own, since none works on after its run has ended.
"""
import ctypes
import os
import sys

import torch.distributed as dist

LIBRARY, FILTER = sys.argv[1:3]
dist.init_process_group("gloo")
groups = []


@ctypes.CFUNCTYPE(ctypes.c_void_p)
def new_group():
    dist.barrier()  # whoever fails alone holds up the others here
    group = dist.new_group(backend="gloo")
    groups.append((group, ctypes.create_string_buffer(group.group_name.encode())))
    return ctypes.addressof(groups[-1][1])


library = ctypes.CDLL(LIBRARY)
failed = library.linerate_run_suites(new_group, FILTER.encode())
sys.stdout.flush()
print(f"rank {dist.get_rank()}: suites {'FAILED' if failed else 'passed'}", flush=True)
os._exit(1 if failed else 0)  # groups whose run has ended are not waited for
