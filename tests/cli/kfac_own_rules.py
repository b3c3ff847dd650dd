#!/usr/bin/env python3
"""Own rules of kfac(spd) beside the authors': never slower by more than rounding of the search, on networks of the zoo.

Usage: kfac_own_rules.py LINERATE CLUSTER
"""
import json
import subprocess
import sys

OWN, AUTHORS = "kfac(spd, factors=1)", "kfac(spd, fusion=greedy, placement=lbp2021, factors=1)"
IMAGES = ["--input", "3x224x224"]
NETWORKS = {"resnet18": IMAGES, "resnet50": IMAGES, "resnet152": IMAGES, "vgg16": IMAGES, "densenet201": IMAGES,
            "inception-v4": IMAGES, "bert-base": [], "gpt-small": []}
RANKS = (2, 4, 16, 64)
NOISE = 1e-3


def main():
    linerate, cluster = sys.argv[1:3]
    slower = []
    for network, shape in NETWORKS.items():
        run = subprocess.run([linerate, "whatif", "-w", f"zoo:{network}", *shape, "--batch", "32", "--step-time", "100ms",
                              "-c", cluster, "--ranks", ",".join(map(str, RANKS)), "--strategy", OWN, "--strategy", AUTHORS,
                              "--json"], capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(run.stderr)
        steps = [p["step_s"] for p in json.loads(run.stdout)["predictions"]]
        for ranks, own, authors in zip(RANKS, steps[:len(RANKS)], steps[len(RANKS):]):
            if own > authors * (1 + NOISE):
                slower.append(f"{network}, {ranks} ranks: {1e3 * own:.1f} ms, by the authors' rules {1e3 * authors:.1f} ms")
    print("\n".join(slower))
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
