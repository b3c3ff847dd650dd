#!/usr/bin/env python3
"""In how many setups compression pays, by rate: predicted by `linerate whatif` with the costs that
it takes unasked.

  bench/codec_costs/pays.py [build/release/linerate]
  bench/codec_costs/pays.py --preset agarwal2021 [build/release/linerate]
                                                      by the closed model of the paper

A setup is a model, a batch, a number of ranks and a compressor of Agarwal et al. 2021, as there:
PowerSGD of rank 4, 8, 16, Top-K of 20, 10, 1 % (half of it indices), SignSGD gathered. It pays if
its step is shorter than that of overlapped DDP; whether it takes as many steps is not asked. Steps
of one rank: ResNet-50 at batch 32 takes 128 ms on a V100 (Zhang et al. 2020), the other models what
as many FLOP/s give (6.1 TFLOP/s; BERT with 512 tokens a sample), other batches in proportion.
"""
import json
import subprocess
import sys

STEPS_MS = {"resnet50": {16: 64, 32: 128, 64: 256}, "resnet101": {16: 122, 32: 244, 64: 488},
            "bert-base": {4: 171, 8: 342, 16: 684}}
COMPRESSORS = ["powersgd(rank=4)", "powersgd(rank=8)", "powersgd(rank=16)", "topk(density=0.1)",
               "topk(density=0.05)", "topk(density=0.005)", "signsgd(exchange=gather)"]
RANKS = "8,16,32,64,96"
RATES = "1Gbit/s,10Gbit/s,25Gbit/s,100Gbit/s"


def predictions(program, preset, model, step_ms):
    strategies = ",".join(["ddp", "ddp+fp16"] + [f"ddp+{c}" for c in COMPRESSORS])
    run = subprocess.run([program, "whatif", "-w", f"zoo:{model}", "--step-time", f"{step_ms}ms",
                          "--ranks", RANKS, "--bandwidth", RATES, "--latency", "20us", "--strategy",
                          strategies, "--json", *preset], capture_output=True, text=True,
                         check=True)
    return json.loads(run.stdout)["predictions"]


def counts(program, preset):
    """({(Gbit/s, column): (setups that pay, setups)}, {Gbit/s: [those of the smallest, the middle,
    the largest batch]}, {Gbit/s: the best})"""
    paying, all_of, batches, best = {}, {}, {}, {}
    for model, by_batch in STEPS_MS.items():
        for size, (batch, step_ms) in enumerate(by_batch.items()):
            found = predictions(program, preset, model, step_ms)
            dense = {(p["ranks"], p["bandwidth_bit_per_s"]): p["step_s"] for p in found
                     if p["strategy"] == "ddp"}
            for p in found:
                if p["strategy"] == "ddp":
                    continue
                rate = p["bandwidth_bit_per_s"] / 1e9
                column = "fp16" if p["strategy"] == "ddp+fp16" else "compressors"
                gain = dense[p["ranks"], p["bandwidth_bit_per_s"]] / p["step_s"]
                all_of[rate, column] = all_of.get((rate, column), 0) + 1
                paying[rate, column] = paying.get((rate, column), 0) + (gain > 1)
                if column == "compressors":
                    batches.setdefault(rate, [0, 0, 0])[size] += gain > 1
                    best[rate] = max(best.get(rate, (0, "")), (
                        gain, f"{p['strategy'][4:]}, {model}, batch {batch}, {p['ranks']} ranks"))
    return {key: (paying[key], all_of[key]) for key in all_of}, batches, best


def main():
    given = sys.argv[1:]
    preset = given[:2] if given[:1] == ["--preset"] else []
    program = given[len(preset)] if len(given) > len(preset) else "build/release/linerate"
    found, batches, best = counts(program, preset)
    print(f"{'Gbit/s':>7}  {'compressors':>13}  {'fp16':>9}  {'by batch':>12}  best")
    for rate in sorted(best):
        cells = [f"{found[rate, column][0]} of {found[rate, column][1]}"
                 for column in ("compressors", "fp16")]
        print(f"{rate:7g}  {cells[0]:>13}  {cells[1]:>9}  {'+'.join(map(str, batches[rate])):>12}  "
              f"{best[rate][0]:.2f} x: {best[rate][1]}")


if __name__ == "__main__":
    main()
