#!/usr/bin/env python3
"""Steps of linerate.torch against DistributedDataParallel's under PyTorch, over gloo, in one run.

usage: torchrun --standalone --nproc-per-node 2 bench/python_peers.py [--model resnet18|gpt] [--rounds N] [--steps N] [--batch N]
       [--only NAME ...]

Every contender has a model of its own and trains a block of steps in turn, round after round; the ranks meet before each block.
A ratio is the median of its blocks' medians over DDP's. First each contender's weights after four steps are compared with DDP's.
"""
import argparse
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

import linerate.torch as lt

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))


class Gpt(nn.Module):
    """4 layers of width 256 over sequences of 64 tokens: 3.7 million parameters."""

    def __init__(self, words=1024, width=256, layers=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(64, width))
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(64), persistent=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens) + self.places, mask=self.mask, is_causal=True)).flatten(0, 1)


def make(model):
    torch.manual_seed(1)
    if model == "gpt":
        return Gpt()
    from models import build
    return build(model)


def batch_of(model, size):
    g = torch.Generator().manual_seed(dist.get_rank())
    if model == "gpt":
        tokens = torch.randint(1024, (size, 65), generator=g)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    return torch.randn(size, 3, 32, 32, generator=g), torch.randint(10, (size,), generator=g)


def hooked(hook):
    def wrap(model):
        dp = nn.parallel.DistributedDataParallel(model)
        dp.register_comm_hook(None, hook)
        return dp
    return wrap


def bf16_hook(state, bucket):
    """By this name DDP takes it; bf16_compress_hook it refuses without a GPU."""
    return bf16_compress_hook(state, bucket)


def ours(strategy):
    """DDP with a hook of linerate's."""
    def wrap(model):
        dp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1 << 14)
        dp.register_comm_hook(*lt.ddp_hook(strategy))
        return dp
    return wrap


def powersgd(model):
    # With two buckets its later rounds came in different orders on the ranks (bench/peers/ddp_worker.py).
    dp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1 << 14)
    dp.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2), powerSGD_hook)
    return dp


CONTENDERS = {  # name: (how, whose time it is measured by)
    "DDP": (nn.parallel.DistributedDataParallel, "DDP"),
    **{s: (lambda m, s=s: lt.DataParallel(m, strategy=s), "DDP") for s in ("ddp", "bulk", "optimal", "dear")},
    "DDP fp16_compress_hook": (hooked(fp16_compress_hook), "DDP"),
    "auto": (lambda m: lt.DataParallel(m, strategy="auto"), "DDP"),
    "ddp(wire=fp16)": (lambda m: lt.DataParallel(m, strategy="ddp(wire=fp16)"), "DDP fp16_compress_hook"),
    "DDP bf16_compress_hook": (hooked(bf16_hook), "DDP"),
    "ddp(wire=bf16)": (lambda m: lt.DataParallel(m, strategy="ddp(wire=bf16)"), "DDP bf16_compress_hook"),
    "DDP powerSGD_hook": (powersgd, "DDP"),
    "ddp+powersgd(rank=4)": (lambda m: lt.DataParallel(m, strategy="ddp+powersgd(rank=4)"), "DDP powerSGD_hook"),
    "ddp_hook powersgd(rank=4)": (ours("powersgd(rank=4)"), "DDP powerSGD_hook"),
    "ddp_hook bulk(wire=fp16)": (ours("bulk(wire=fp16)"), "DDP fp16_compress_hook"),
}
EXACT = ("ddp", "bulk", "optimal", "dear", "auto")


class Contender:
    def __init__(self, name, model, data):
        self.model, (self.x, self.y) = make(model), data
        self.dp = CONTENDERS[name][0](self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.blocks = []

    def step(self):
        nn.functional.cross_entropy(self.dp(self.x), self.y).backward()
        if isinstance(self.dp, lt.DataParallel):
            self.dp.step(self.optimizer)
        else:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def run(self, steps):
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        if isinstance(self.dp, lt.DataParallel):
            self.dp.settle()
        return times

    def block(self, steps):
        dist.barrier()
        self.blocks.append(statistics.median(self.run(steps + 1)[1:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS))
    o = parser.parse_args()
    torch.set_num_threads(1)
    lt.init()
    data = batch_of(o.model, o.batch)
    contenders = {name: Contender(name, o.model, data) for name in o.only}
    for name, contender in contenders.items():
        contender.run(4)
        if name in EXACT and "DDP" in contenders and dist.get_world_size() == 2:
            for a, b in zip(contender.model.parameters(), contenders["DDP"].model.parameters()):
                assert torch.equal(a, b), f"{name}: weights are not DDP's"
    for contender in contenders.values():
        contender.run(12)  # until the plans are final
    for _ in range(o.rounds):
        for contender in contenders.values():
            contender.block(o.steps)
    if dist.get_rank() == 0:
        print(f"{o.model}, batch {o.batch}, {dist.get_world_size()} ranks, {o.rounds} rounds of {o.steps} steps")
        for name, contender in contenders.items():
            mine = contender.blocks
            against = contenders.get(CONTENDERS[name][1])
            ratio = ""
            if against is not None and against is not contender:
                each = sorted(a / b for a, b in zip(mine, against.blocks))
                ratio = f"{statistics.median(each):.3f} of {CONTENDERS[name][1]}'s ({each[0]:.3f} to {each[-1]:.3f})"
            print(f"  {name:27} {1e3 * statistics.median(mine):8.1f} ms  {ratio}")


main()
