"""What predictions need of a job, as ../shared/gpu has it: traces of DDP on every rank, a table of
all-reduces, a rank's step alone; and what a trace says of why steps take so long."""
import collections
import gzip
import json
import pathlib
import time

import torch
import torch.distributed as dist
from clock import Clock, wait_for_device
from torch.profiler import ProfilerActivity, profile, schedule

_TRACED = 6  # steps
UNTRACED = 2  # steps before these


def sizes_up_to(largest):
    """Powers of two from 1 KiB, with three quarters between the larger ones, up to what a bucket
    may hold."""
    return sorted(n for n in [1 << k for k in range(10, 29)] + [3 << k for k in range(14, 26, 2)]
                  if n <= largest)


def time_collectives(gradient_bytes, bits, device, meet):
    """[(bytes, seconds)] of f32 all-reduces in a row, up to twice the gradients; none that takes
    over a second at `bits` (None: no rate)."""
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


def trace(step, device, path, steps=_TRACED):
    """Profiles `steps` calls of `step`, after UNTRACED others, into a gzipped trace; collective."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities, schedule=schedule(wait=UNTRACED - 1, warmup=1, active=steps,
                                                          repeat=1), record_shapes=True) as p:
        for _ in range(UNTRACED + steps):
            step()
            p.step()
        wait_for_device(device)
    plain = pathlib.Path(path).with_suffix("")
    p.export_chrome_trace(str(plain))
    pathlib.Path(path).write_bytes(gzip.compress(plain.read_bytes(), 6))
    plain.unlink()


def events_of(path):
    """Those of a gzipped trace."""
    return json.loads(gzip.decompress(pathlib.Path(path).read_bytes()))["traceEvents"]


def host_waits(events):
    """Counter of where the host waited for the device: "task: operator", the innermost that contain
    the call; "?" outside of all."""
    around = [e for e in events if e.get("cat") in ("user_annotation", "cpu_op")]
    waits = collections.Counter()
    for wait in (e for e in events if e.get("cat") == "cuda_runtime"
                 and ("Synchronize" in e["name"] or e["name"] == "cudaMemcpy")):
        inside = [e for e in around if e["tid"] == wait["tid"] and e["ts"] <= wait["ts"] < e["ts"]
                  + e["dur"] and not e["name"].startswith("ProfilerStep")]
        innermost = [min((e for e in inside if e["cat"] == cat), key=lambda e: e["dur"],
                         default=None) for cat in ("user_annotation", "cpu_op")]
        waits[": ".join(e["name"] for e in innermost if e) or "?"] += 1
    return waits


def words_of(path):
    """What a step of a gzipped trace costs: operations of the device by stream, the host's time in
    calls of CUDA, its waits."""
    events = events_of(path)
    steps = max(1, len({e["name"] for e in events if e.get("cat") == "user_annotation"
                        and e["name"].startswith("ProfilerStep")}))
    device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not device:
        return (f"{sum(e.get('cat') == 'cpu_op' for e in events) / steps:.0f} operators a step, "
                "none of a device")
    streams = collections.Counter(e["args"].get("stream") for e in device)
    calls = sum(e["dur"] for e in events if e.get("cat") == "cuda_runtime") / steps
    waits = [f"{count / steps:g} in {where}" for where, count in host_waits(events).most_common(5)]
    busy = ([f"{n / steps:.0f} in stream {s}" for s, n in streams.most_common(4)]
            + [f"{len(streams) - 4} more streams"] * (len(streams) > 4))
    return (f"{len(device) / steps:.0f} operations of the device a step ({', '.join(busy)}), "
            f"{sum(e['dur'] for e in device) / steps / 1e3:.1f} ms of them; the host "
            f"{calls / 1e3:.1f} ms in calls of CUDA, its waits: {', '.join(waits) or 'none'}")


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
