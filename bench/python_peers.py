#!/usr/bin/env python3
"""Steps of linerate.torch against DistributedDataParallel's under PyTorch, over gloo and over MPI, in one run.

usage: tools/python-torch run bench/python_peers.py [--models resnet18 gpt] [--rates unshaped 1Gbit/s 200Mbit/s] [--rounds N] [--only NAME ...]

For each model and rate two ranks start under tools/mpirun, with a rate under tools/lab (network namespaces: root; left out with the
reason where they cannot be made). Every contender has a model of its own and trains a block of steps in turn, round after round; the
ranks meet before each block. First each exact contender's weights after four steps have to be DDP's, bit for bit.

A ratio is the median over rounds of a block's median step over that of the contender named behind it, with the least and the largest of
the rounds. A bound "holds" if the median keeps it, is "missed" if every round is above it, else "not told apart". The second number of
milliseconds is processor time of all threads of rank 0, which other programs disturb less.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
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


def ours(strategy, **options):
    """DDP with a hook of linerate's, and the options of the DDP that it is measured by."""
    def wrap(model):
        dp = nn.parallel.DistributedDataParallel(model, **options)
        dp.register_comm_hook(*lt.ddp_hook(strategy))
        return dp
    return wrap


# With two buckets the later rounds of PyTorch's PowerSGD came in different orders on the ranks (bench/peers/ddp_worker.py).
ONE_BUCKET = {"bucket_cap_mb": 1 << 14}


def powersgd(model):
    dp = nn.parallel.DistributedDataParallel(model, **ONE_BUCKET)
    dp.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2), powerSGD_hook)
    return dp


def over_gloo(strategy):
    return lambda m: lt.DataParallel(m, strategy=strategy, process_group=dist.group.WORLD)


def over_mpi(strategy):
    return lambda m: lt.DataParallel(m, strategy=strategy)


DDP = "DDP"
CONTENDERS = {  # name: (how, whose time it is measured by, what the ratio may be at most)
    DDP: (nn.parallel.DistributedDataParallel, None, None),
    "ddp": (over_gloo("ddp"), DDP, 1.0),
    "optimal": (over_gloo("optimal"), DDP, 1.02),
    "dear": (over_gloo("dear"), DDP, 1.02),
    "auto": (over_gloo("auto"), DDP, None),
    "ddp over MPI": (over_mpi("ddp"), DDP, None),
    "dear over MPI": (over_mpi("dear"), DDP, None),
    "DDP fp16_compress_hook": (hooked(fp16_compress_hook), DDP, None),
    "ddp(wire=fp16)": (over_gloo("ddp(wire=fp16)"), "DDP fp16_compress_hook", 1.0),
    "ddp_hook bulk(wire=fp16)": (ours("bulk(wire=fp16)"), "DDP fp16_compress_hook", 1.0),
    "DDP bf16_compress_hook": (hooked(bf16_hook), DDP, None),
    "ddp(wire=bf16)": (over_gloo("ddp(wire=bf16)"), "DDP bf16_compress_hook", 1.0),
    "DDP powerSGD_hook": (powersgd, DDP, None),
    "ddp+powersgd(rank=4)": (over_gloo("ddp+powersgd(rank=4)"), "DDP powerSGD_hook", 1.0),
    "ddp_hook powersgd(rank=4)": (ours("powersgd(rank=4)", **ONE_BUCKET), "DDP powerSGD_hook", 1.0),
}
EXACT = ("ddp", "optimal", "dear", "auto", "ddp over MPI", "dear over MPI")
SETTLES = {"auto": 12, **{name: 8 for name in EXACT if name.startswith(("optimal", "dear"))}}  # steps until the plan is final, after four


class Contender:
    def __init__(self, name, model, data):
        self.model, (self.x, self.y) = make(model), data
        self.dp = CONTENDERS[name][0](self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.blocks, self.processor = [], []

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
            start, processor = time.perf_counter(), time.process_time()
            self.step()
            times.append((time.perf_counter() - start, time.process_time() - processor))
        if isinstance(self.dp, lt.DataParallel):
            self.dp.settle()
        return times

    def block(self, steps):
        dist.barrier()
        times = self.run(steps + 1)[1:]
        self.blocks.append(statistics.median(wall for wall, _ in times))
        self.processor.append(statistics.median(processor for _, processor in times))


def rank(o):
    """One rank of a run: measures, and rank 0 writes the blocks of each contender."""
    if o.shaped:
        os.environ.update(MASTER_ADDR="10.97.0.1", GLOO_SOCKET_IFNAME="eth0")  # tools/lab's first namespace
    os.environ["MASTER_PORT"] = str(o.port)
    torch.set_num_threads(1)
    lt.init()
    lt.init("mpi")
    data = batch_of(o.model, o.batch)
    contenders = {name: Contender(name, o.model, data) for name in o.only}
    for name, contender in contenders.items():
        contender.run(4)
        if name in EXACT and DDP in contenders:
            for a, b in zip(contender.model.parameters(), contenders[DDP].model.parameters()):
                assert torch.equal(a, b), f"{name}: weights are not DDP's"
    for name, contender in contenders.items():
        contender.run(SETTLES.get(name, 1))
    for _ in range(o.rounds):
        for contender in contenders.values():
            contender.block(o.steps)
    if dist.get_rank() == 0:
        plans = {n: c.dp.plan()["strategy"] for n, c in contenders.items() if isinstance(c.dp, lt.DataParallel)}
        print("result " + json.dumps({"blocks": {n: c.blocks for n, c in contenders.items()},
                                     "processor": {n: c.processor for n, c in contenders.items()}, "plans": plans}), flush=True)


def verdict(ratios, bound):
    if bound is None:
        return ""
    return "holds" if statistics.median(ratios) <= bound else "missed" if ratios[0] > bound else "not told apart"


def print_table(result):
    """Returns the bounds that were missed."""
    missed = []
    for name, blocks in result["blocks"].items():
        _, of, bound = CONTENDERS[name]
        line = f"  {name:26} {1e3 * statistics.median(blocks):8.1f} {1e3 * statistics.median(result['processor'][name]):8.1f} ms"
        if of in result["blocks"]:
            ratios = sorted(a / b for a, b in zip(blocks, result["blocks"][of]))
            says = verdict(ratios, bound)
            line += f"  {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) of {of}"
            if bound is not None:
                line += f", at most {bound:.2f}: {says}"
            if says not in ("", "holds"):
                missed.append(f"{name}: {says}")
        if name == "auto":
            line += f"  [{result['plans'][name]}]"
        print(line, flush=True)
    return missed


_SHAPED = 3, 2  # rounds, steps: at a low rate steps are long, and vary little


def measured(o, model, rate):
    """A run's result; None if there can be no such rate here."""
    here = pathlib.Path(__file__).resolve()
    root = here.parents[1]
    shaped = rate != "unshaped"
    names = [n for n in o.only if not (shaped and n == "auto")]
    start = [root / "tools/lab", "run", "--ranks", "2", "--rate", rate, "--"] if shaped else [root / "tools/mpirun", "-n", "2"]
    port = 20000 + os.getpid() % 20000
    rounds, steps = _SHAPED if shaped else (o.rounds, o.steps)
    command = [*start, sys.executable, here, "--rank", "--model", model, "--rounds", str(rounds), "--steps", str(steps), "--batch",
               str(o.batch), "--port", str(port), *(["--shaped"] if shaped else []), "--only", *names]
    done = subprocess.run([str(c) for c in command], env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.PIPE)
    if done.returncode == 77:
        return None
    found = [line for line in done.stdout.splitlines() if line.startswith("result ")]
    if done.returncode != 0 or not found:
        sys.exit(f"{model}, {rate}: exit status {done.returncode}\n{done.stdout}")
    return json.loads(found[0].removeprefix("result "))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["resnet18", "gpt"])
    parser.add_argument("--rates", nargs="*", default=["unshaped", "1Gbit/s", "200Mbit/s"])
    parser.add_argument("--rounds", type=int, default=5, help="without a rate; with one 3")
    parser.add_argument("--steps", type=int, default=4, help="of a block without a rate; with one 2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS))
    for private, options in (("--rank", {"action": "store_true"}), ("--shaped", {"action": "store_true"}), ("--model", {}),
                             ("--port", {"type": int})):
        parser.add_argument(private, help=argparse.SUPPRESS, **options)
    o = parser.parse_args()
    if o.rank:
        return rank(o)
    missed, start = [], time.monotonic()
    for model in o.models:
        for rate in o.rates:
            begun = time.monotonic()
            result = measured(o, model, rate)
            if result is None:
                print(f"{model}, {rate}: left out")
                continue
            print(f"{model}, {rate}, batch {o.batch}, 2 ranks, {len(result['blocks'][o.only[0]])} rounds, {time.monotonic() - begun:.0f} s")
            missed += [f"{model}, {rate}: {one}" for one in print_table(result)]
    print(f"{time.monotonic() - start:.0f} s; bounds: {'; '.join(missed) or 'all hold'}")


main()
