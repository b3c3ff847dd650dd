#!/usr/bin/env python3
"""What Python's layer adds to a step beyond the C++ class that it calls, on one rank: no messages,
so nothing else differs.

usage: tools/python-torch run python bench/python_layer.py [--steps N] [--layers N]

Two models of N linear layers train in turn, step by step: one as users write it, `dp(x)`, backward,
`dp.step(opt)`; the other by the C++ class's own calls, `model(x)`, backward, `core.finish()`,
`opt.step()`, gradients to None. First both have to end at the same weights. A figure is the median
over steps of the difference, in microseconds: by the clock, and of the thread's processor time,
which other programs disturb less. `recorded`: in the steps that report() keeps (record=20, then no
more). Under dear the core cannot step a Python optimizer alone: the figure is what taking the
optimizer's step apart costs beyond one whole opt.step(), on the thread that does it.
"""
import argparse
import statistics
import time

import torch
from torch import nn

import linerate.torch as lt
from linerate.torch import _data_parallel
from linerate.torch._optimizers import PartialStep


class Contender:
    def __init__(self, layers, strategy, thin, record):
        torch.manual_seed(1)
        self.model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(layers)])
        self.dp = lt.DataParallel(self.model, strategy=strategy, record=record)
        self.opt = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.step = self._step if thin else self._step_of_core
        self.x = torch.ones(4, 16)

    def _step(self):
        self.dp(self.x).square().mean().backward()
        self.dp.step(self.opt)

    def _step_of_core(self):
        self.model(self.x).square().mean().backward()
        self.dp._core.finish()
        self.opt.step()
        for p in self.model.parameters():
            p.grad = None

    def timed(self):
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        self.step()
        return (time.perf_counter_ns() - wall) / 1e3, (time.thread_time_ns() - cpu) / 1e3


class TimedParts(PartialStep):
    """Notes what it takes, in microseconds of the clock and of the thread's processor time."""
    taken = [0.0, 0.0]

    def __getattribute__(self, name):
        method = super().__getattribute__(name)
        if name not in ("capture", "update", "release"):
            return method

        def timed(*arguments):
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
            method(*arguments)
            TimedParts.taken[0] += (time.perf_counter_ns() - wall) / 1e3
            TimedParts.taken[1] += (time.thread_time_ns() - cpu) / 1e3
        return timed


def print_row(what, pairs, whole):
    wall, cpu = (statistics.median(a[i] - b[i] for a, b in pairs) for i in (0, 1))
    print(f"  {what:14} {wall:6.0f} by the clock, {cpu:6.0f} of processor time  ({whole} alone: "
          f"{statistics.median(b[0] for _, b in pairs):.0f})")


def measure_steps(o, record):
    ours, core = (Contender(o.layers, "ddp", thin, record) for thin in (True, False))
    for _ in range(20):
        ours.step()
        core.step()
    pairs = [(ours.timed(), core.timed()) for _ in range(o.steps)]
    assert all(torch.equal(a, b) for a, b in zip(ours.model.parameters(), core.model.parameters()))
    print_row("ddp, recorded" if record else "ddp", pairs, "a step of the core")
    for one in (ours, core):
        one.dp.close()


def measure_parts(o, strategy):
    _data_parallel.PartialStep = TimedParts
    ours, plain = Contender(o.layers, strategy, True, 0), Contender(o.layers, "ddp", False, 0)
    pairs = []
    for step in range(20 + o.steps):
        TimedParts.taken[:] = 0.0, 0.0
        ours.step()
        ours.dp.settle()
        plain.model(plain.x).square().mean().backward()
        plain.dp._core.finish()
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        plain.opt.step()
        whole = (time.perf_counter_ns() - wall) / 1e3, (time.thread_time_ns() - cpu) / 1e3
        plain.model.zero_grad()
        if step >= 20:
            pairs.append((tuple(TimedParts.taken), whole))
    assert all(torch.equal(a, b) for a, b in zip(ours.model.parameters(), plain.model.parameters()))
    buckets = sum(task["kind"].startswith("update")
                  for task in ours.dp.plan()["variants"][-1]["tasks"])
    print_row(f"dear, {buckets} parts", pairs, "opt.step()")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=31)
    o = parser.parse_args()
    torch.set_num_threads(1)
    lt.init()
    print(f"{o.layers} linear layers, {2 * o.layers} parameters, {o.steps} steps: what Python's "
          "layer adds to a step, us")
    measure_steps(o, 0)
    measure_steps(o, o.steps + 50)
    for strategy in ("dear", "dear(layers=1)"):
        measure_parts(o, strategy)


main()
