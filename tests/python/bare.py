"""What tools/without-libraries runs: the package works where the machine has none of the libraries
that it is built with."""

import ctypes
import json
import subprocess
import sysconfig
from pathlib import Path

for library in ("libsimdjson.so.14", "libhwy.so.1", "libfmt.so.9"):
    try:
        ctypes.CDLL(library)
    except OSError:
        continue
    raise SystemExit(f"{library} is there: nothing is hidden")

import linerate  # noqa: E402

traces = str(Path(__file__).resolve().parents[1] / "trace/fixtures/late2.rank*.json.gz")
e = linerate.explain(traces)
w = linerate.import_workload(traces)
assert linerate.advise(w, ranks=4, bandwidth="1Gbit/s").best
printed = subprocess.run([sysconfig.get_path("scripts") + "/linerate", "explain", "--json", traces],
                         capture_output=True, check=True)
assert json.loads(printed.stdout) == e.to_dict()
print("explained without the machine's libraries:", e.verdict)
