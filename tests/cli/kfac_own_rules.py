#!/usr/bin/env python3
"""Own rules of kfac(spd) are never slower than the authors', nor behind another order of gradients:
on every network of the zoo.

Usage: kfac_own_rules.py LINERATE CLUSTER FITTED

CLUSTER has costs of second order, which the other Clusters here take over: FITTED, and links of
some rates.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

RANKS = (2, 4, 16, 64)
RATES = ("10 Gbit/s", "100 Gbit/s")
# Predictions are means over steps of all kinds; of the third, 99 of 100 bring factors alone. The
# first has every layer.
KINDS = ("factors=1, largest=16384", "factors=10, inverses=100",
         "factors=1, inverses=100, largest=16384")
MOST_BEHIND_AUTHORS, MOST_BEHIND_BULK = 1e-3, 5e-3


def output(*command):
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}\n{run.stderr}")
    return run.stdout


def networks(linerate):
    return [line.split()[0] for line in output(linerate, "list", "models").splitlines()]


def clusters(authors, fitted, folder):
    """Files by name; the authors' first."""
    second_order = json.loads(authors.read_text())["second_order"]
    others = {"fitted": json.loads(fitted.read_text())}
    for rate in RATES:
        others[rate] = {"document": "cluster", "schema": 1, "ranks": 4,
                        "network": {"bandwidth": rate, "latency": "20 us"}}
    files = {"authors": authors}
    for name, cluster in others.items():
        files[name] = folder / f"{name.split()[0]}.json"
        files[name].write_text(json.dumps({**cluster, "second_order": second_order}))
    return files


def steps(linerate, network, cluster, strategies):
    """By strategy, seconds by number of ranks."""
    text = output(linerate, "whatif", "-w", f"zoo:{network}", "--batch", "32", "--step-time",
                  "100ms", "-c", str(cluster), "--ranks", ",".join(map(str, RANKS)), "--json",
                  *(word for s in strategies for word in ("--strategy", s)))
    seconds = [p["step_s"] for p in json.loads(text)["predictions"]]
    return [seconds[k * len(RANKS):(k + 1) * len(RANKS)] for k in range(len(strategies))]


def comparisons(with_authors):
    """(own strategy, other, how much slower the own may be)."""
    for kind in KINDS:
        own = f"kfac(spd, {kind})"
        yield own, f"bulk+{own}", MOST_BEHIND_BULK
        if with_authors and kind == KINDS[0]:
            yield own, f"kfac(spd, fusion=greedy, placement=lbp2021, {kind})", MOST_BEHIND_AUTHORS


def slower(linerate, network, name, cluster):
    """Lines of what is slower."""
    compared = list(comparisons(name == "authors"))
    strategies = list(dict.fromkeys(s for own, other, _ in compared for s in (own, other)))
    by_strategy = dict(zip(strategies, steps(linerate, network, cluster, strategies)))
    for own, other, most in compared:
        for ranks, mine, theirs in zip(RANKS, by_strategy[own], by_strategy[other]):
            if mine > theirs * (1 + most):
                yield (f"{network}, {name}, {ranks} ranks: {own} {1e3 * mine:.1f} ms, {other} "
                       f"{1e3 * theirs:.1f} ms")


def main():
    linerate = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        files = clusters(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), pathlib.Path(folder))
        found = [line for network in networks(linerate) for name, file in files.items()
                 for line in slower(linerate, network, name, file)]
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
