#!/usr/bin/env python3
"""Whether agreeing on tensors holds up the message before: exposed gradients of a model that the
fit never saw.

Usage: agreement.py LINERATE

Horovod agrees on tensors, and copies them, in a thread of its own, while earlier messages travel.
linerate's `tensor_s` is part of a message's time on the network instead. Both rules are fitted here
to the same four published numbers, what gradients and one phase of factors expose on ResNet-50 and
DenseNet-201, and asked for ResNet-152. Messages are those of `linerate plan` by the strategy
`horovod`; factors leave in its buffers of 64 MiB.
"""
import json
import math
import subprocess
import sys

from fit import nelder_mead
from predict import RANKS, HERE, published

FUSED_MB = 64 * 2**20 / 1e6
# batch, ms of forward and backward, factors, their elements in millions (packed): reference of
# K-FAC's authors
MODELS = {"resnet50": (32, 132.0, 108, 76.97), "densenet201": (16, 178.0, 402, 132.77),
          "resnet152": (8, 114.0, 312, 194.89)}
FITTED = ("resnet50", "densenet201")
SEEN = {"resnet152": 159.0}  # ms of gradients, published
RULES = ("one after the other", "while earlier messages travel")
START = {"s a MB": 4e-4, "s a tensor": 3e-4, "s a message": 3e-4, "slowdown - 1": 3.0}


def messages_of(linerate, model):
    """(end of backward, [(ready, tensors, MB)]) of a step, in s."""
    batch, ms, *_ = MODELS[model]
    run = subprocess.run([linerate, "plan", "-w", f"zoo:{model}", "--input", "3x224x224", "--batch",
                          str(batch), "--step-time", f"{ms}ms", "--step-time-covers",
                          "forward_backward", "-c", str(HERE / "cluster.json"), "--ranks",
                          str(RANKS), "--strategy", "horovod", "--json"], capture_output=True,
                         text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    step = next(v for v in json.loads(run.stdout)["variants"] if v["name"] == "steady")
    now, messages = 0.0, []
    for task in step["tasks"]:
        if task["resource"] == "compute":
            now += task["seconds"]
        elif task["kind"] == "all-reduce":
            sent = step["payloads"][task["first"]:task["last"] + 1]
            messages.append((now, sum(p["end"] - p["begin"] for p in sent), task["bytes"] / 1e6))
    return now, messages


def factors_of(model):
    *_, tensors, millions = MODELS[model]
    count = math.ceil(4 * millions / FUSED_MB)
    return 0.0, [(0.0, tensors / count, 4 * millions / count)] * count


def exposed_s(job, constants, rule):
    """From the end of computation until the last message has arrived. The network is slower before
    it."""
    (end, messages), (s_per_mb, tensor_s, message_s, slowdown) = job, constants
    agreed = free = 0.0
    for ready, tensors, megabytes in messages:
        network_s = message_s + s_per_mb * megabytes
        if rule == RULES[0]:
            start, network_s = max(ready, free), network_s + tensor_s * tensors
        else:
            agreed = max(ready, agreed) + tensor_s * tensors
            start = max(agreed, free)
        hidden = min(network_s, max(0.0, end - start) / slowdown)
        free = start + hidden * slowdown + network_s - hidden
    return free - end


def constants_of(x):
    values = [math.exp(v) for v in x]
    return *values[:3], 1 + values[3]


def main():
    jobs = {model: messages_of(sys.argv[1], model) for model in MODELS}
    table = published()
    real = {model: [table[model, "kfac(d)"][part]
                    for part in ("gradient_communication_ms", "factor_communication_ms")]
            for model in FITTED}

    def predicted(model, constants, rule):
        return [1e3 * exposed_s(job, constants, rule) for job in (jobs[model], factors_of(model))]

    for rule in RULES:
        def cost(x):
            return sum((p / r - 1) ** 2 for model in FITTED
                       for p, r in zip(predicted(model, constants_of(x), rule), real[model]))
        starts = [[math.log(v) for v in START.values()],
                  [math.log(v) for v in (4e-4, 3e-4, 3e-4, 0.3)]]
        x = min((nelder_mead(cost, s, 0.4, 4000) for s in starts), key=cost)
        print(f"agreed on {rule}: " + ", ".join(
            f"{1e3 * c:.3g} m{name}" for c, name in zip(constants_of(x), list(START)[:3]))
              + f", {constants_of(x)[3]:.2f} times slower under computation")
        for model in MODELS:
            gradients, factors = predicted(model, constants_of(x), rule)
            print(f"  {model:11} gradients {gradients:5.1f} ms "
                  f"({real.get(model, [SEEN.get(model)])[0]:.1f} published), factors "
                  f"{factors:5.1f} ms" + (f" ({real[model][1]:.1f})" if model in real else ""))


if __name__ == "__main__":
    main()
