#!/usr/bin/env python3
"""Own rules of kfac(spd) are never slower than the authors', nor behind another order of gradients: on networks of the zoo.

Usage: kfac_own_rules.py LINERATE CLUSTER
"""
import json
import pathlib
import subprocess
import sys
import tempfile

OWN = "kfac(spd, factors=1)"
# `bulk` sends all gradients after backward, behind the factors if that is sooner. Each with how much slower `OWN` may be.
OTHERS = {"kfac(spd, fusion=greedy, placement=lbp2021, factors=1)": 1e-3, "bulk+kfac(spd, factors=1)": 5e-3}
IMAGES = ["--input", "3x224x224"]
NETWORKS = {"mlp": [], "lenet": [], "resnet18": IMAGES, "resnet50": IMAGES, "resnet101": IMAGES, "resnet152": IMAGES,
            "vgg16": IMAGES, "densenet201": IMAGES, "inception-v4": IMAGES, "bert-base": [], "gpt-small": []}


def steps(linerate, network, cluster, ranks, strategies):
    """By strategy, seconds by number of ranks."""
    run = subprocess.run([linerate, "whatif", "-w", f"zoo:{network}", *NETWORKS[network], "--batch", "32", "--step-time",
                          "100ms", "-c", cluster, "--ranks", ",".join(map(str, ranks)), "--json",
                          *(word for s in strategies for word in ("--strategy", s))], capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    seconds = [p["step_s"] for p in json.loads(run.stdout)["predictions"]]
    return [seconds[k * len(ranks):(k + 1) * len(ranks)] for k in range(len(strategies))]


def slower(linerate, network, cluster, ranks, others):
    own, *rest = steps(linerate, network, cluster, ranks, [OWN, *others])
    for other, theirs in zip(others, rest):
        for n, mine, yours in zip(ranks, own, theirs):
            if mine > yours * (1 + OTHERS[other]):
                yield f"{network}, {cluster}, {n} ranks: {1e3 * mine:.1f} ms, {other} {1e3 * yours:.1f} ms"


def main():
    linerate, authors = sys.argv[1:3]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for network in NETWORKS:
            found += slower(linerate, network, authors, (2, 4, 16, 64), list(OTHERS))
            for rate in ("10", "100"):
                links = pathlib.Path(folder) / f"{rate}.json"
                links.write_text(json.dumps({
                    "document": "cluster", "schema": 1, "ranks": 4,
                    "network": {"bandwidth": f"{rate} Gbit/s", "latency": "20 us"},
                    "second_order": json.loads(pathlib.Path(authors).read_text())["second_order"]}))
                found += slower(linerate, network, str(links), (2, 4, 16), list(OTHERS)[1:])
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
