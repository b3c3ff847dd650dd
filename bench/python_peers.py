#!/usr/bin/env python3
"""Steps of linerate.torch against DistributedDataParallel's under PyTorch, over gloo and over MPI,
in one run.

usage: tools/python-torch run bench/python_peers.py [--models resnet18 gpt] [--rates unshaped
1Gbit/s 200Mbit/s] [--rounds N] [--only NAME ...] [--json FILE [--picture FILE]]
       bench/python_peers.py --from FILE --picture FILE     draws again what was measured before

For each model and rate two ranks start under tools/mpirun, with a rate under tools/lab (network
namespaces: root; left out with the reason where they cannot be made). Every contender has a model
of its own and trains a block of steps in turn, round after round; the ranks meet before each block.
First each exact contender's weights after four steps have to be DDP's, bit for bit. The ranks are
bench/peers/peers_rank.py, which also measures GPUs (tools/gpu-lab peers).

A ratio is the median over rounds of a block's median step over that of the contender named with it,
with the least and the largest of the rounds. A bound "holds" if the median keeps it, is "missed" if
every round is above it, else "not told apart". The second number of milliseconds is processor time
of all threads of rank 0, which other programs disturb less. "plan" is the strategy in force, where
it is another than the contender's name says.

--json writes all rows of the last model with the date and the machine. --picture draws its steps
over the rates (SVG).
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "peers"), str(HERE), str(HERE.parent / "tools")]
import peers_picture  # noqa: E402
import ratios  # noqa: E402
from contenders import ON_CPUS  # noqa: E402
from shaped_links import parse_rate  # noqa: E402

_SHAPED_STEPS = 2  # of a block: at a low rate steps are long


def measured(o, model, rate, scratch):
    """A run's result; None if there can be no such rate here."""
    shaped = rate != "unshaped"
    steps = _SHAPED_STEPS if shaped else o.steps
    environment = {"MASTER_PORT": str(20000 + os.getpid() % 20000)}
    if shaped:
        # tools/lab's first namespace
        environment.update(MASTER_ADDR="10.97.0.1", GLOO_SOCKET_IFNAME="eth0")
    job = {"set": "cpus", "model": model, "device": "cpu", "batch": o.batch, "lr": 0.01,
           "rounds": o.rounds, "steps": steps, "loss_steps": 0, "endure": 0,
           "names": [n for n in o.only if not (shaped and n == "auto")], "environment": environment,
           "result": str(scratch / "result.json")}
    start = ([HERE.parent / "tools/lab", "run", "--ranks", "2", "--rate", rate, "--"]
             if shaped else [HERE.parent / "tools/mpirun", "-n", "2"])
    command = [*start, sys.executable, HERE / "peers/peers_rank.py", json.dumps(job)]
    done = subprocess.run([str(c) for c in command], env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode == 77:
        return None
    if done.returncode != 0:
        sys.exit(f"{model}, {rate}: exit status {done.returncode}")
    return json.loads((scratch / "result.json").read_text())


def require_sound(rows, where):
    for row in rows:
        if row["status"] != "measured":
            sys.exit(f"{where}: {row['contender']}: {row['reason']}")
        if row["weights_from_ddp"]:
            sys.exit(f"{where}: {row['contender']}: weights are not DDP's")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["resnet18", "gpt"],
                        help="those of bench/peers/models.py; matrix: the exchange alone")
    parser.add_argument("--rates", nargs="*", default=["unshaped", "1Gbit/s", "200Mbit/s"])
    parser.add_argument(
        "--rounds", type=int, default=5,
        help="blocks of each contender (5); the more, the smaller a difference that is told apart")
    parser.add_argument("--steps", type=int, default=4,
                        help="of a block without a rate; with one 2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=list(ON_CPUS))
    parser.add_argument("--json", type=pathlib.Path, help="where the rows go")
    parser.add_argument("--picture", type=pathlib.Path, help="where their drawing goes")
    parser.add_argument("--from", dest="drawn", type=pathlib.Path,
                        help="draw the rows of this file, and measure nothing")
    o = parser.parse_args()
    if o.drawn:
        peers_picture.draw(json.loads(o.drawn.read_text()), o.picture)
        return
    missed, found, start = [], {}, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="linerate-peers-") as scratch:
        for model in o.models:
            found = {"model": model, "batch": o.batch, "ranks": 2, "rows": [],
                     "date": datetime.date.today().isoformat(), "processors": os.cpu_count()}
            for rate in o.rates:
                begun = time.monotonic()
                result = measured(o, model, rate, pathlib.Path(scratch))
                if result is None:
                    print(f"{model}, {rate}: left out")
                    continue
                rows = ratios.rows_of(result, ON_CPUS, rate)
                require_sound(rows, f"{model}, {rate}")
                print(f"{model}, {rate}, batch {o.batch}, 2 ranks, {len(rows[0]['blocks_s'])} "
                      f"rounds, {time.monotonic() - begun:.0f} s")
                print("\n".join(line for row in rows for line in ratios.lines_of(row)), flush=True)
                missed += [f"{model}, {rate}: {one}" for one in ratios.missed(rows)]
                bits = None if rate == "unshaped" else parse_rate(rate)
                found["rows"] += [{**row, "bandwidth_bit_per_s": bits} for row in rows]
                found.update(machine=result["device"], versions=result["versions"])
    if o.json:
        o.json.write_text(json.dumps(found, indent=1) + "\n")
    if o.picture:
        peers_picture.draw(found, o.picture)
    print(f"{time.monotonic() - start:.0f} s; bounds: {'; '.join(missed) or 'all hold'}")


main()
