"""Prints what the package answers on the repository's fixtures, as JSON: tools/python-package compares builds by it."""

import json
from pathlib import Path

import linerate

ROOT = Path(__file__).resolve().parents[2]
traces = {name: str(ROOT / f"tests/trace/fixtures/{name}.rank*.json.gz") for name in ("even2", "late2", "half2", "gloo4", "single")}
workload = linerate.import_workload(traces["even2"])
cluster = linerate.calibrate(ROOT / "tests/calibrate/recorded/runs_2ranks_1Gbit.csv", ranks=2)
strategies = ["bulk", "ddp", "dear", *(f"ddp+{name}" for name in linerate.compressors().names)]
answers = {f"explain {name}": linerate.explain(files) for name, files in traces.items()}
answers["workload"] = workload
answers["cluster"] = cluster
answers["whatif"] = linerate.whatif(workload, cluster, ranks=[2, 16], bandwidth=["1Gbit/s", "10Gbit/s"], strategy=strategies)
answers["advise"] = linerate.advise(workload, cluster, ranks=16)
answers["plan"] = linerate.plan(workload, cluster, ranks=4, strategy="ddp+topk(density=0.01)")
print(json.dumps({name: answer.to_dict() for name, answer in answers.items()}, indent=1, sort_keys=True))
