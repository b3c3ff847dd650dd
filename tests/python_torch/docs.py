#!/usr/bin/env python3
"""Blocks of documents, on every rank of a torchrun job, each with names of its own: test_docs.py.

What a page takes for granted is here: a network, its batches, a loss, an optimizer, a wrapped
model.
"""
import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import linerate.torch as lt

import docs_blocks

torch.set_num_threads(1)
initialize = dist.init_process_group
# of several programs in one process
dist.init_process_group = lambda *a, **k: None if dist.is_initialized() else initialize(*a, **k)


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 5))


def taken_for_granted(code):
    torch.manual_seed(7)
    batches = torch.Generator().manual_seed(int(os.environ["RANK"]))
    net = Net()
    names = {"torch": torch, "lt": lt, "dist": dist, "DistributedDataParallel":
                 DistributedDataParallel, "Net": Net, "net": net, "model": net, "loader":
                 [(torch.randn(8, 10, generator=batches), torch.randint(5, (8,), generator=batches))
                  for _ in range(32)], "loss_fn": nn.CrossEntropyLoss(),
             "loss_of": nn.functional.cross_entropy}
    names["x"], names["y"] = names["loader"][0]
    names["opt"] = names["optimizer"] = torch.optim.SGD(net.parameters(), 0.1)
    if "dp." in code and "dp = " not in code:
        lt.init()
        names["dp"] = lt.DataParallel(net)
    return names


found = docs_blocks.blocks("torch")
# those that make the group are first
for block in sorted(found, key=lambda b: "init_process_group" not in b.code):
    names = taken_for_granted(block.code)
    exec(compile(block.code, block.where, "exec"), names)
    assert all(torch.isfinite(p).all() for p in names["model"].parameters())
    del names
    gc.collect()
    dist.barrier()  # a block may read what one before it has written
    print(f"rank {dist.get_rank()}: use {block.where}: ok", flush=True)
