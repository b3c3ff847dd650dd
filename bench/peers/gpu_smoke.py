"""tools/gpu-lab kit, stages smoke and sanitizer: every strategy trains a small network on the
device, next to DDP and to itself on the CPU.

usage: gpu_smoke.py DEVICE [STRATEGY ...]     under tools/gpu-lab run; without strategies those of
                                              the registry, each K-FAC, and more

A line a strategy: weights against DDP's, bit for bit on two ranks if it is dense, else how far they
are from the same strategy's on the CPU (no bound: a device rounds otherwise, and what is largest
may differ); the host's and the device's time of a step; where the host waited for the device.
torch.cuda.set_sync_debug_mode finds waits, a profile of two more steps names their tasks. A
strategy that fails, whose ranks have other weights than each other, that is not finite, or that
waits although its page does not say so is a problem: exit status 1. Under TORCH_CUDA_SANITIZER=1
operators in two streams that are in no order fail, too; nothing is profiled then.
"""
import os
import sys
import tempfile
import time
import warnings

import recordings
import torch
import torch.distributed as dist
from clock import Clock, wait_for_device
from peers_rank import device_of, largest_difference
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import linerate.torch as lt

# Of these the options differ from the registry's; K-FAC's kinds, wire formats and other exchanges
# are options, no names.
OPTIONS = {"acpsgd": "acpsgd(rank=2)", "powersgd": "powersgd(rank=2)"}
WIRES = ["ddp(wire=fp16)", "ddp(wire=bf16)", "dear(wire=fp16)"]
OTHER_EXCHANGES = ["ddp+topk(exchange=two-phase)", "ddp+qsgd(exchange=two-phase)",
                   "ddp+qsgd(exchange=gather)", "dear+randomk"]
KFAC = ["ddp+kfac(spd, factors=1, inverses=2)", "ddp+kfac(spd, fusion=none, factors=1)",
        "ddp+kfac(d, factors=1)", "ddp+kfac(mpd, factors=2, inverses=4)",
        "ddp+kfac(mem, factors=1)", "ddp+kfac(hybrid, factors=1)", "ddp+kfac(dp, inverses=2)",
        "ddp+kfac(mpd, inverse=eigen, factors=2, inverses=4)",
        "dear+kfac(spd, clip=off, damping=0.1, factors=1, inverses=2)"]
# docs/devices.md: sizes that ranks tell each other, a fit, a solver's status
WAITS = ("threshold", "sidco", "eigen")
STEPS, QUIET_FROM, PROFILED = 12, 5, 2


def registered():
    """Every dense exchange; every strategy."""
    from linerate.torch import _core
    exchanges = _core.exchanges()
    return exchanges, exchanges + WIRES + [f"ddp+{OPTIONS.get(name, name)}"
                                           for name in _core.compressors()] + OTHER_EXCHANGES + KFAC


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False),
                         nn.BatchNorm2d(16, affine=False), nn.ReLU(),
                         nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(16 * 16, 64), nn.ReLU(), nn.Linear(64, 10))


def batch(step, device):
    g = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return (torch.randn(8, 3, 8, 8, generator=g).to(device),
            torch.randint(10, (8,), generator=g).to(device))


class Run:
    """Some steps of a strategy (None: DDP), enqueued or, on the CPU alone, as they are without a
    device: what they took, where they waited."""

    def __init__(self, strategy, device, enqueued=True):
        self.device, self.model = device, network().to(device)
        if strategy is None:
            self.parallel = DistributedDataParallel(self.model)
        else:
            self.parallel = lt.DataParallel(self.model, strategy, process_group=dist.group.WORLD,
                                            most_above_ddp=float("inf"), record=0,
                                            device_group=dist.group.WORLD if enqueued else None)
        has_momentum = any(one in (strategy or "") for one in ("dgc", "onebit-adam"))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.02,
                                         momentum=0 if has_momentum else 0.9)
        self.batches = [batch(s, device) for s in range(STEPS)]
        self.waited, self.where, self.host_s, self.device_s = 0, {}, 0.0, 0.0

    def step(self, s):
        x, y = self.batches[s]
        output = self.parallel(x)
        nn.functional.cross_entropy(output, y).backward()
        if isinstance(self.parallel, lt.DataParallel):
            self.parallel.step(self.optimizer)
        else:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def train(self):
        for s in range(QUIET_FROM):
            self.step(s)
        wait_for_device(self.device)
        looks = self.device.type == "cuda" and not is_sanitized()
        if looks:
            torch.cuda.set_sync_debug_mode("warn")
        clock, begun = Clock(self.device), time.perf_counter()
        clock.mark()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for s in range(QUIET_FROM, STEPS):
                self.step(s)
        clock.mark()
        self.host_s = (time.perf_counter() - begun) / (STEPS - QUIET_FROM)
        if looks:
            torch.cuda.set_sync_debug_mode("default")
        self.waited = sum("synchroniz" in str(w.message) for w in said)
        if isinstance(self.parallel, lt.DataParallel):
            self.parallel.settle()
            self.parallel.require_same_weights()
        wait_for_device(self.device)
        self.device_s = clock.seconds()[0] / (STEPS - QUIET_FROM)
        return self

    def name_waits(self):
        """Where: by a profile of other steps, after which the weights are no longer those that are
        compared."""
        with tempfile.TemporaryDirectory() as folder:
            s = iter(range(STEPS))
            path = f"{folder}/trace.json.gz"
            recordings.trace(lambda: self.step(next(s)), self.device, path, steps=PROFILED)
            self.where = recordings.host_waits(recordings.events_of(path))


def is_sanitized():
    return bool(os.environ.get("TORCH_CUDA_SANITIZER"))


def look(name, exact, ddp, device, meet):
    """(words, problems) of a strategy."""
    run = Run(name, device).train()
    words, problems = [f"host {1e3 * run.host_s:7.2f} ms  device {1e3 * run.device_s:7.2f} ms"], []
    if not all(bool(torch.isfinite(w).all()) for w in run.model.state_dict().values()):
        problems.append("weights are not finite")
    if exact:
        difference = largest_difference(run.model, ddp.model)
        words.append("DDP's bit for bit" if difference == 0 else f"{difference:.1e} from DDP's")
        if difference and (dist.get_world_size() == 2 or difference > 1e-5):
            problems.append("weights are not DDP's")
    elif not is_sanitized():
        on_cpu, copied = Run(name, torch.device("cpu"), enqueued=False).train(), network()
        copied.load_state_dict(run.model.state_dict())
        words.append(f"{largest_difference(on_cpu.model, copied):.1e} from its own on the CPU")
    anywhere = [False] * dist.get_world_size()
    dist.all_gather_object(anywhere, run.waited > 0, group=meet)
    if any(anywhere):
        run.name_waits()
        words.append(f"the host waited {run.waited} times in {STEPS - QUIET_FROM} steps: "
                     f"{', '.join(f'{n} in {where}' for where, n in run.where.most_common(4))}")
        if not any(w in name for w in WAITS):
            problems.append("a wait that no page names")
    return "  ".join(words), problems


def main():
    device = device_of({"device": sys.argv[1]})
    torch.backends.cudnn.deterministic = True
    lt.init(timeout=60)
    meet = dist.new_group(backend="gloo")
    exact, names = registered()
    names = sys.argv[2:] or names
    ddp, bad = Run(None, device).train(), 0
    for name in names:
        try:
            words, problems = look(name, name in exact, ddp, device, meet)
        except Exception as error:  # every rank is told, so all come here
            words, problems = "", [f"{type(error).__name__}: "
                                   f"{(str(error).strip().splitlines() or ['?'])[0][:300]}"]
        bad += bool(problems)
        if dist.get_rank() == 0:
            print("  ".join(filter(None, [f"{name:60}", words,
                                          *(f"PROBLEM: {p}" for p in problems)])), flush=True)
    if dist.get_rank() == 0:
        print(f"{len(names)} strategies, {bad} with problems", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
