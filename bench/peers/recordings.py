"""What predictions need of a job, as ../shared/gpu has it: traces of DDP on every rank, a table of all-reduces, a rank's step alone."""
import gzip
import pathlib
import time

import torch
import torch.distributed as dist
from clock import Clock, wait_for_device
from torch.profiler import ProfilerActivity, profile, schedule

_TRACED = 6  # steps


def sizes_up_to(largest):
    """Powers of two from 1 KiB, with three quarters between the larger ones, up to what a bucket may hold."""
    return sorted(n for n in [1 << k for k in range(10, 29)] + [3 << k for k in range(14, 26, 2)] if n <= largest)


def time_collectives(gradient_bytes, bits, device, meet):
    """[(bytes, seconds)] of f32 all-reduces in a row, up to twice the gradients; none that takes over a second at `bits` (None: no rate)."""
    rows = []
    for n in sizes_up_to(max(1 << 18, 2 * gradient_bytes)):
        if bits and n * 8 / bits > 1.2:
            continue
        x = torch.ones(n // 4, device=device)
        calls = 3 if n > 1 << 22 else 10
        for _ in range(2):
            dist.all_reduce(x)
        wait_for_device(device)
        dist.barrier(meet)
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(x)
        wait_for_device(device)
        rows.append((n, (time.perf_counter() - start) / calls))
    return rows


def write_table(rows, path):
    lines = [f"{n},{s:.9f},{dist.get_world_size()},all_reduce" for n, s in rows]
    pathlib.Path(path).write_text("\n".join(["bytes,seconds,ranks,collective", *lines]) + "\n")


def trace(step, device, path):
    """Profiles some calls of `step` into a gzipped trace; collective."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities, schedule=schedule(wait=1, warmup=1, active=_TRACED, repeat=1), record_shapes=True) as p:
        for _ in range(_TRACED + 2):
            step()
            p.step()
        wait_for_device(device)
    plain = pathlib.Path(path).with_suffix("")
    p.export_chrome_trace(str(plain))
    pathlib.Path(path).write_bytes(gzip.compress(plain.read_bytes(), 6))
    plain.unlink()


def alone(step, device, steps):
    """Seconds of steps that exchange nothing, on all ranks at once."""
    for _ in range(4):
        step()
    wait_for_device(device)
    clock = Clock(device)
    clock.mark()
    for _ in range(steps):
        step()
        clock.mark()
    wait_for_device(device)
    return clock.seconds()
