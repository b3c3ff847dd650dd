"""tools/gpu-lab kit, stage streams: what a step takes by how its all-reduces are enqueued, under
one and the same backward pass.

usage: gpu_streams.py DEVICE MODEL [ROUNDS]     under tools/gpu-lab run

A rank trains the model as it would alone. As soon as the gradients of 25 MiB are there, an
all-reduce of as many bytes is enqueued, of memory that nobody uses: nothing differs between the
ways but streams, their priority and the back end's asyncOp. Ways take turns, a block each. A line a
way: the step, and the host's time in a call. The first way is DistributedDataParallel's, the second
was linerate's.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist
from clock import Clock, wait_for_device
from contenders import ALONE
from peers_rank import Training, device_of, join_ranks

BUCKET, STEPS = 25 << 20, 6


class Way:
    """Enqueues all-reduces: in a stream of its own if `priority` is a number, asynchronously or as
    asyncOp=false has it."""

    def __init__(self, device, priority=None, is_async=True, group=None):
        self.stream = None if priority is None else torch.cuda.Stream(device, priority=priority)
        self.is_async, self.group, self.works = is_async, group, []

    def send(self, tensor):
        if self.stream is None:
            work = dist.all_reduce(tensor, group=self.group, async_op=self.is_async)
            if work is not None:
                self.works.append(work)
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            work = dist.all_reduce(tensor, group=self.group, async_op=self.is_async)
            if work is not None:
                work.wait()

    def join(self):
        """The computing stream goes on when all have arrived."""
        for work in self.works:
            work.wait()
        self.works.clear()
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)


def ways_on(device):
    if device.type == "cpu":  # no streams: the two calls alone
        return {"asynchronous": Way(device), "asyncOp=false": Way(device, is_async=False)}
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    first, last = torch.cuda.Stream.priority_range()  # the least priority, the highest
    return {"NCCL's stream": Way(device), "own stream, then NCCL's": Way(device, first),
            "NCCL's stream, high priority": Way(device, group=dist.new_group(backend="nccl",
                                                                             pg_options=options)),
            "own stream, asyncOp=false": Way(device, first, False),
            "own stream of high priority, asyncOp=false": Way(device, last, False)}


class Sender:
    """All-reduces in a way, as gradients of a model become ready."""

    def __init__(self, model, device):
        self.way, self.host_s, self.calls, self.ready = None, 0.0, 0, 0
        sizes = [4 * p.numel() for p in model.parameters()]
        self.bucket = min(BUCKET, max(1, sum(sizes) // 4))
        self.memory = torch.zeros(max([self.bucket, *sizes]) // 4 + 1, device=device)
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.note)

    def note(self, p):
        self.ready += 4 * p.numel()
        if self.way is not None and self.ready >= self.bucket:
            self.ready = 0
            begun = time.perf_counter()
            self.way.send(self.memory)
            self.host_s += time.perf_counter() - begun
            self.calls += 1


def block(training, sender, way, device, meet):
    """(seconds of a step, of the host in a call)"""
    dist.barrier(meet)
    sender.way, sender.host_s, sender.calls = way, 0.0, 0
    clock = Clock(device)
    clock.mark()
    for _ in range(STEPS):
        sender.ready = 0
        training.loss = torch.nn.functional.cross_entropy(training.model(training.x), training.y)
        training.loss.backward()
        if way is not None:
            way.join()
        training.optimizer.step()
        training.optimizer.zero_grad()
        clock.mark()
    wait_for_device(device)
    return statistics.median(clock.seconds()[1:]), sender.host_s / max(1, sender.calls)


def main():
    job = {"set": "gpus", "device": sys.argv[1], "model": sys.argv[2],
           "batch": 32 if sys.argv[2] == "resnet50" else 8, "lr": 0.01}
    device = device_of(job)
    join_ranks(job)
    meet = dist.new_group(backend="gloo")
    training = Training(ALONE, job, device)
    sender = Sender(training.model, device)
    ways = {"nothing is sent": None} | ways_on(device)
    found = {name: [] for name in ways}
    for r in range(1 + (int(sys.argv[3]) if len(sys.argv) > 3 else 4)):
        for name, way in ways.items():
            seconds = block(training, sender, way, device, meet)
            if r > 0:  # the first makes communicators
                found[name].append(seconds)
    if dist.get_rank() == 0:
        for name, blocks in found.items():
            steps, calls = zip(*blocks)
            print(f"{name:44} {1e3 * statistics.median(steps):8.2f} ms a step "
                  f"({1e3 * min(steps):.2f} to {1e3 * max(steps):.2f})  "
                  f"{1e6 * statistics.median(calls):8.1f} us of the host a call")
    dist.barrier(meet)


if __name__ == "__main__":
    main()
