#!/usr/bin/env python3
"""What PyTorch's communication hooks do to tensors and what that costs, from a folder of recordings
and of steps measured without a profiler.

  bench/codec_costs/measure.py FOLDER [--model resnet50]

A step under a hook takes T_1, coding, and collectives that computation waits for (their kernels and
those of backward take turns in the recordings). So coding = step - T_1 - collectives, at each rate:

  step, T_1     measured.csv: medians of steps under the hook and of one rank alone
  collectives   the messages of the hook's recording (MODEL_HOOK_RATE_r0.json.gz, median step), each
                priced by the table of that rate and type, t_all_reduce_f16_RATE_2.csv or
                table_RATE.csv, straight between two sizes

src/linerate/plan/codec_costs.json states what comes of it, as a function of the tensors:

  launches      kernels and copies that a step of the recording enqueues, less those of DDP's own;
                of PowerSGD by matrix
  bytes/s       four passes over the gradients' bytes (f32 to f16, divided, f16 to f32) in the
                kernels that fp16's recording has and DDP's does not
  s a launch    coding under PowerSGD less eleven passes (residual added, copied, three products,
                residual kept), by launch; products of matrices that thin take as long as
                reading their bytes, which the passes are
"""
import argparse
import collections
import csv
import gzip
import json
import statistics
from pathlib import Path

HOOKS = {"fp16": ("fp16_compress_hook", "fp16"),
         "psgd": ("powerSGD_hook rank 4", "powersgd(rank=4)")}
BYTES = {"Float": 4, "Half": 2}


def table(path):
    with open(path) as lines:
        return sorted((int(row["bytes"]), float(row["seconds"])) for row in csv.DictReader(lines))


def seconds_of(rows, size):
    """Straight between the sizes on either side; the largest in proportion."""
    for (a, at_a), (b, at_b) in zip(rows, rows[1:]):
        if size <= b:
            return at_a + max(0, size - a) / (b - a) * (at_b - at_a)
    return rows[-1][1] * size / rows[-1][0]


class Recording:
    def __init__(self, trace):
        with gzip.open(trace) as file:
            self.events = json.load(file)["traceEvents"]
        self.steps = [(e["ts"], e["ts"] + e["dur"]) for e in self.events
                      if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]

    def messages(self):
        """(type, elements) of the all-reduces of one step: each that is there in most steps."""
        counts = collections.Counter()
        for event in self.events:
            said = event.get("args") or {}
            if event.get("cat") == "kernel" and said.get("Collective name") == "allreduce":
                counts[said["dtype"], said["In msg nelems"]] += 1
        return [what for what, count in counts.items()
                for _ in range(round(count / len(self.steps)))]

    def launches(self):
        """Of the median step."""
        asked = {e["args"]["correlation"]: e["ts"] for e in self.events
                 if e.get("cat") in ("cuda_runtime", "cuda_driver")
                 and "correlation" in e.get("args", {})}
        of_step = [0] * len(self.steps)
        for event in self.events:
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                at = asked.get(event["args"].get("correlation"), 0)
                for i, (begin, end) in enumerate(self.steps):
                    of_step[i] += begin <= at <= end
        return statistics.median(of_step)

    def kernels(self):
        """{name: seconds a step}, without collectives."""
        seconds = collections.Counter()
        for event in self.events:
            if event.get("cat") == "kernel" and not event["name"].startswith("nccl"):
                seconds[event["name"]] += event["dur"] * 1e-6 / len(self.steps)
        return seconds

    def calls(self, name):
        return sum(e.get("cat") == "cpu_op" and e["name"] == name for e in self.events) / len(
            self.steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="resnet50")
    arguments = parser.parse_args()
    folder, model = arguments.folder, arguments.model
    with open(folder / "measured.csv") as lines:
        measured = {(row["configuration"], row["rate"]): float(row["median_ms"]) * 1e-3
                    for row in csv.DictReader(lines)
                    if row["model"] == model and row["ranks"] == "2"}
    alone = measured["alone", ""]
    plain = Recording(folder / f"{model}_10G_r0.json.gz")
    dense = sum(size for kind, size in plain.messages() if kind == "Float") * BYTES["Float"]
    print(f"T_1 {alone * 1e3:.2f} ms, {dense:,} bytes of gradients, {plain.launches():.0f} "
          "launches a step")
    middle, recordings = {}, {}
    for hook, (configuration, compressor) in HOOKS.items():
        recordings[hook] = Recording(folder / f"{model}_{hook}_10G_r0.json.gz")
        sent = recordings[hook].messages()
        coding = []
        for rate in ("un", "10G", "5G"):
            step = measured["ddp " + configuration, rate]
            tables = {"Float": table(folder / f"table_{rate}.csv")}
            half = folder / f"t_all_reduce_f16_{rate}_2.csv"
            tables["Half"] = table(half) if half.exists() else tables["Float"]
            collectives = sum(seconds_of(tables[kind], size * BYTES[kind]) for kind, size in sent)
            coding.append(step - alone - collectives)
            print(
                f"{compressor:<18} {rate:>3}  step {step * 1e3:6.2f}  collectives "
                f"{collectives * 1e3:6.2f} ({len(sent)} messages, "
                f"{sum(BYTES[k] * n for k, n in sent):,} bytes)  coding {coding[-1] * 1e3:6.2f} ms")
        middle[hook] = statistics.mean(coding)
        print(f"{compressor:<18} mean {middle[hook] * 1e3:.2f} ms, "
              f"{recordings[hook].launches() - plain.launches():.0f} launches more than DDP")
    known = plain.kernels()
    casts = sum(seconds for name, seconds in recordings["fp16"].kernels().items()
                if name not in known)
    bytes_per_s = 4 * dense / casts
    print(f"casts' kernels take {casts * 1e3:.3f} ms: {bytes_per_s:.4g} bytes/s")
    more = recordings["psgd"].launches() - plain.launches()
    matrices = recordings["psgd"].calls("aten::linalg_qr") / 2
    print(f"{more / matrices:.1f} launches for each of {matrices:.0f} matrices, "
          f"{(middle['psgd'] - 11 * dense / bytes_per_s) / more * 1e6:.2f} us a launch")


if __name__ == "__main__":
    main()
