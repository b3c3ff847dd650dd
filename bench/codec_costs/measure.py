#!/usr/bin/env python3
"""What coding costs under PyTorch's communication hooks, from a folder of recordings and of steps measured without a profiler.

  bench/codec_costs/measure.py FOLDER [--model resnet50]

A step under a hook takes T_1, coding, and collectives that computation waits for (their kernels and those of backward take
turns in the recordings). So coding = step - T_1 - collectives, at each rate:

  step, T_1     measured.csv: medians of steps under the hook and of one rank alone
  collectives   the messages of the hook's recording (MODEL_HOOK_RATE_r0.json.gz, median step), each priced by the table of
                that rate and type, t_all_reduce_f16_RATE_2.csv or table_RATE.csv, straight between two sizes

Printed is coding by rate, its mean, and the rate in dense bytes that src/linerate/plan/codec_costs.json states.
"""
import argparse
import collections
import csv
import gzip
import json
import statistics
from pathlib import Path

HOOKS = {"fp16": ("fp16_compress_hook", "fp16"), "psgd": ("powerSGD_hook rank 4", "powersgd(rank=4)")}
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


def messages(trace):
    """(type, elements) of the all-reduces of the recording, those of one step: each that is there in most steps."""
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    counts, steps = collections.Counter(), 0
    for event in events:
        said = event.get("args") or {}
        steps += event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep")
        if event.get("cat") == "kernel" and said.get("Collective name") == "allreduce":
            counts[said["dtype"], said["In msg nelems"]] += 1
    return [what for what, count in counts.items() for _ in range(round(count / steps))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="resnet50")
    arguments = parser.parse_args()
    folder, model = arguments.folder, arguments.model
    with open(folder / "measured.csv") as lines:
        measured = {(row["configuration"], row["rate"]): float(row["median_ms"]) * 1e-3
                    for row in csv.DictReader(lines) if row["model"] == model and row["ranks"] == "2"}
    alone = measured["alone", ""]
    dense = sum(size for kind, size in messages(folder / f"{model}_10G_r0.json.gz") if kind == "Float") * 4
    print(f"T_1 {alone * 1e3:.2f} ms, {dense:,} bytes of gradients")
    for hook, (configuration, compressor) in HOOKS.items():
        sent = messages(folder / f"{model}_{hook}_10G_r0.json.gz")
        coding = []
        for rate in ("un", "10G", "5G"):
            step = measured["ddp " + configuration, rate]
            tables = {"Float": table(folder / f"table_{rate}.csv")}
            half = folder / f"t_all_reduce_f16_{rate}_2.csv"
            tables["Half"] = table(half) if half.exists() else tables["Float"]
            collectives = sum(seconds_of(tables[kind], size * BYTES[kind]) for kind, size in sent)
            coding.append(step - alone - collectives)
            print(f"{compressor:<18} {rate:>3}  step {step * 1e3:6.2f}  collectives {collectives * 1e3:6.2f} "
                  f"({len(sent)} messages, {sum(BYTES[k] * n for k, n in sent):,} bytes)  coding {coding[-1] * 1e3:6.2f} ms")
        middle = statistics.mean(coding)
        print(f"{compressor:<18} mean {middle * 1e3:.2f} ms: {dense / middle:.4g} dense bytes/s")


if __name__ == "__main__":
    main()
