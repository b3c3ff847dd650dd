"""Steps that others measured and published (../shared/public/steps.csv), predicted by what a buyer
knows: model, batch, one rank's step and the network's kind and nominal line."""
import collections
import concurrent.futures
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROWS = ROOT.parent / "shared/public/steps.csv"
# Gbit/s; iperf3's one stream, and what NCCL got on the same link (README of the rows)
SHAPED = {("g6e", 9.53): 15.0}


def kind_inside(row):
    text = row["inside"].lower().replace(" ", "")
    return "" if text in ("-", "") else text.replace("infinityfabric", "xgmi")


def kind_between(row):
    text = row["between"].lower()
    return next((kind for word, kind in (
        ("tcp", "tcp"), ("infiniband", "rdma"), ("rdma", "rdma"), ("roce", "rdma"), ("efa", "efa"),
        ("slingshot", "slingshot"), ("wan", "wan"), ("ethernet", "tcp")) if word in text), None)


def network_of(row):
    line = float(row["line_gbit_per_node"])
    rate = SHAPED.get((row["cluster"], line), line)
    return f"{row['ranks_per_node']}x{kind_inside(row)},{kind_between(row)}:{rate:g}Gbit/s"


class Predictor:
    """linerate whatif --network, by constants of a file; rows of one job and network in one
    call."""

    def __init__(self, linerate, scratch=None):
        self.linerate, self.scratch, self.files = linerate, scratch, 0
        self.methods = {s["name"] for s in self.listed("strategies")}
        self.models = {m["name"].replace("-", ""): m["name"] for m in self.listed("models")}

    def listed(self, what):
        return json.loads(subprocess.run([self.linerate, "list", what, "--json"], text=True,
                                         stdout=subprocess.PIPE, check=True).stdout)[what]

    def workload_of(self, row):
        """-w and its options; None if neither the zoo nor the row says the model's size."""
        model = row["model"].split(" ")[0].replace("-", "").lower()
        if model in self.models:
            return ["-w", "zoo:" + self.models[model], "--batch", row["batch_per_rank"]]
        known = {"gpt30m": "30846720"}  # README of the rows
        return ["-w", f"params:{known[model]}"] if model in known else None

    def why_not(self, row):
        """Empty: it is predicted."""
        if row["method"] not in self.methods:
            return "method"
        return "" if self.workload_of(row) and kind_between(row) else "model or network"

    def call(self, key, file):
        workload, network, step_s, strategies, ranks = key
        words = [str(self.linerate), "whatif", *workload, "--step-time", f"{step_s}s", "--network",
                 network, "--strategy", ",".join(strategies), "--ranks", ",".join(ranks), "--json"]
        kinds = {"LINERATE_NETWORKS": str(file)} if file else {}
        done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, **kinds})
        if done.returncode != 0:
            sys.exit(f"public_steps: {' '.join(words)} ended with code {done.returncode}: "
                     f"{done.stderr.strip()}")
        return {(p["strategy"], str(p["ranks"])): (p["step_s"], *p["interval_s"])
                for p in json.loads(done.stdout)["predictions"]}

    def steps(self, rows, networks=None):
        """(step, low, high) of each row, by these constants; by the command's own if none are
        given."""
        file = None
        if networks:
            file = self.scratch / f"networks-{self.files}.json"
            self.files += 1
            file.write_text(json.dumps(networks))
        jobs = collections.defaultdict(lambda: (set(), set()))
        key_of = lambda r: (tuple(self.workload_of(r)), network_of(r), r["one_rank_step_s"])
        for r in rows:
            jobs[key_of(r)][0].add(r["method"])
            jobs[key_of(r)][1].add(r["ranks"])
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            calls = {k: pool.submit(self.call, (*k, sorted(s), sorted(n, key=int)), file)
                     for k, (s, n) in jobs.items()}
            found = {k: c.result() for k, c in calls.items()}
        return [found[key_of(r)][r["method"], r["ranks"]] for r in rows]


def cluster_of(row):
    return row["cluster"], row["between"]


def spans_nodes(row):
    return int(row["ranks"]) > int(row["ranks_per_node"])


def cases_of(rows, steps):
    return [{"row": r, "error": p / float(r["step_s"]) - 1, "inside": low <= float(r["step_s"])
             <= high, "predicted_s": p, "interval_s": [low, high]}
            for r, (p, low, high) in zip(rows, steps)]


def show(title, cases):
    errors = [c["error"] for c in cases]
    print(f"{title:44} {len(cases):>4} rows  mean {statistics.mean(map(abs, errors)):6.1%}  bias "
          f"{statistics.mean(errors):+6.1%}  "
          f"worst {max(errors, key=abs):+6.1%}  inside "
          f"{sum(c['inside'] for c in cases) / len(cases):4.0%}")


def show_by_cluster(cases):
    by = collections.defaultdict(list)
    for c in cases:
        by[cluster_of(c["row"])].append(c)
    for cluster, some in by.items():
        show(", ".join(cluster), some)
    show("all", cases)


def rows_of(predictor, file):
    """(rows that are predicted, [(reason, row)] of the others)"""
    if not file.exists():
        sys.exit(f"{file} is absent; name the file of the measured steps")
    every = [(predictor.why_not(r), r) for r in csv.DictReader(file.open())]
    return [r for why, r in every if not why], [(why, r) for why, r in every if why]


def show_left_out(left_out):
    for (why, method, model), count in collections.Counter((why, r["method"], r["model"])
                                                           for why, r in left_out).items():
        print(f"not predicted, {why}: {method} of {model}, {count} rows")
