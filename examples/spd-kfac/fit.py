#!/usr/bin/env python3
"""Fits one set of constants to the published parts of ResNet-50 and DenseNet-201 and writes the
Cluster.

Usage: fit.py LINERATE > cluster.json            minutes; progress on stderr
       fit.py LINERATE --only MODEL > other.json  on one model alone, to see what that says of the
                                                  other

The simulator is in the loop: a candidate is a Cluster, `linerate whatif` says what it predicts, and
a simplex (Nelder & Mead 1965) walks to the least sum of squares. The rate of factor products is not
fitted: it is that of a published benchmark.
"""
import json
import math
import sys
import tempfile
from pathlib import Path

import predict

# Published fp32 benchmark: the products of ResNet-50's 108 factors at batch 32, 2 rows d^2 flops
# each, take 135.0 ms.
FACTOR_FLOPS_PER_S = 11.9e12
BYTES = 4  # of an element

# Where the walk begins: what two equations in two unknowns give for each part alone (reference of
# the fit: README.md).
START = {
    "inverse_fixed_s": 8.6e-4,
    "inverse_s_per_cube": 4.0e-13,
    "factor_fixed_s": 1.5e-4,
    "factor_s_per_input": 6e-11,
    "all_reduce_s": 5e-4,
    "all_reduce_s_per_element": 1.5e-9,
    "tensor_s": 3e-4,
    "broadcast_s": 8e-4,
    "broadcast_s_per_element": 6e-10,
    "communication_slowdown": 3.0,
}


def collective(name, alpha_s, s_per_element):
    segment = {"from_bytes": 0, "to_bytes": 2**30, "alpha_s": alpha_s,
               "beta_s_per_byte": digits(s_per_element / BYTES)}
    return {"collective": name, "ranks": predict.RANKS, "dtype": "f32", "in_place": True,
            "source": "fit.py", "segments": [segment]}


def cluster_of(c):
    return {
        "document": "cluster", "schema": 1, "name": "spd-kfac 64 GPUs",
        "source": "fitted by examples/spd-kfac/fit.py on the published parts of ResNet-50 and "
                  "DenseNet-201",
        "ranks": predict.RANKS, "ranks_per_node": 4,
        "network": {"bandwidth": "100 Gbit/s", "latency": "0 s"},
        "collectives": [collective("all-reduce", c["all_reduce_s"], c["all_reduce_s_per_element"]),
                        collective("broadcast", c["broadcast_s"], c["broadcast_s_per_element"])],
        "tensor_s": c["tensor_s"],
        "second_order":
            {"inverse_fixed_s": c["inverse_fixed_s"], "inverse_s_per_cube": c["inverse_s_per_cube"],
             "factor_flops_per_s": FACTOR_FLOPS_PER_S, "factor_fixed_s": c["factor_fixed_s"],
             "factor_s_per_input": c["factor_s_per_input"]},
        "contention": {"compute_slowdown": 1,
                       "communication_slowdown": c["communication_slowdown"]},
    }


def digits(value, count=4):
    return float(f"{value:.{count - 1}e}")


def constants_of(x):
    """Positions of the walk are logarithms: constants stay above 0. A slowdown is at least 1."""
    c = {name: digits(math.exp(v)) for name, v in zip(START, x)}
    c["communication_slowdown"] = max(1.0, c["communication_slowdown"])
    return c


def off_by(predicted, real):
    """In units of what is allowed of a part."""
    return abs(predicted - real) / max(predict.MOST_PART * real, predict.MOST_PART_MS)


def cost_of(lines, fused):
    """Totals count by their error relative to 2 % (measured twice they differ by 2 to 6 %), parts
    by theirs relative to what is allowed, and steeply beyond that. What factors take unfused tells
    what a message costs by itself."""
    cost = sum((e / 0.02) ** 2 for e in predict.errors(lines))
    for _, _, parts, _, row in lines:
        for p, r in zip(parts[1:], predict.published_parts(row)[1:]):
            cost += off_by(p, r) ** 2 + 400 * max(0.0, off_by(p, r) - 0.95) ** 2
    return cost + sum(off_by(p, r) ** 2 for _, strategy, p, r in fused if "fusion=none" in strategy)


def state_errors(cluster, lines):
    """What published exposed times are of the predicted ones, where they are long enough to say
    something: the interval of each collective."""
    of_collective = {"all-reduce": ("gradient_communication", "factor_communication"),
                     "broadcast": ("inverse_communication",)}
    for cost in cluster["collectives"]:
        ratios = [r / p for _, _, parts, _, row in lines
                  for name, p, r in zip(predict.PARTS, parts, predict.published_parts(row))
                  if name in of_collective[cost["collective"]]
                  and min(p, r) >= predict.MOST_PART_MS]
        off = [abs(ratio - 1) for ratio in ratios]
        cost["error_mean"], cost["error_max"] = digits(sum(off) / len(off), 2), digits(max(off), 2)
        cost["segments"][0]["low"], cost["segments"][0]["high"] = (digits(min(1, *ratios), 3),
                                                                   digits(max(1, *ratios), 3))


class Search:
    def __init__(self, linerate, folder, only=None):
        self.linerate, self.file, self.only = linerate, Path(folder) / "cluster.json", only
        self.runs, self.least = 0, math.inf

    def __call__(self, x):
        self.file.write_text(json.dumps(cluster_of(constants_of(x))))
        cost = cost_of(predict.beside_published(self.linerate, self.file, self.only),
                       predict.beside_fusion(self.linerate, self.file, self.only))
        self.runs += 1
        if cost < self.least:
            self.least = cost
            print(f"\r{self.runs} runs, cost {cost:.4f}  ", end="", file=sys.stderr, flush=True)
        return cost


def nelder_mead(cost, x, step, most_runs):
    """Minimises `cost` from x with an initial simplex of edge `step`: reflect, expand, contract,
    shrink (1, 2, 1/2, 1/2)."""
    n = len(x)
    simplex = [(cost(x), x)]
    for i in range(n):
        y = [v + (step if j == i else 0) for j, v in enumerate(x)]
        simplex.append((cost(y), y))
    runs = n + 1

    def along(factor):
        y = [c + factor * (w - c) for c, w in zip(centre, simplex[-1][1])]
        return cost(y), y

    while runs < most_runs:
        simplex.sort(key=lambda s: s[0])
        if simplex[-1][0] - simplex[0][0] <= 1e-5 * simplex[0][0]:
            break
        centre = [sum(p[1][j] for p in simplex[:-1]) / n for j in range(n)]
        trial = along(-1)
        runs += 1
        if trial[0] < simplex[0][0]:
            trial = min(trial, along(-2), key=lambda s: s[0])
            runs += 1
        elif trial[0] >= simplex[-2][0]:
            trial = min(trial, along(0.5), along(-0.5), key=lambda s: s[0])
            runs += 2
        if trial[0] < simplex[-1][0]:
            simplex[-1] = trial
            continue
        best = simplex[0][1]
        simplex = [simplex[0]] + [(cost(y), y) for y in
                                  ([(a + b) / 2 for a, b in zip(best, p)] for _, p in simplex[1:])]
        runs += n
    return min(simplex, key=lambda s: s[0])[1]


def main():
    with tempfile.TemporaryDirectory() as folder:
        search = Search(sys.argv[1], folder, sys.argv[3] if "--only" in sys.argv else None)
        x = [math.log(v) for v in START.values()]
        for step in (0.3, 0.2, 0.1):  # a simplex collapses: begin anew around the best
            x = nelder_mead(search, x, step, 400)
        print(file=sys.stderr)
        cluster = cluster_of(constants_of(x))
        search(x)
        state_errors(cluster, predict.beside_published(search.linerate, search.file))
        print(json.dumps(cluster, indent=1))


if __name__ == "__main__":
    main()
