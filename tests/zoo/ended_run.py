#!/usr/bin/env python3
"""Whatever ends a run, what it recorded is there and is read: ended_run.py LINERATE [MPIRUN]

A run whose last step to record is over is killed (SIGKILL). One that still records is ended by each
signal that a terminal, a batch system or a limit of time sends: to the process, to mpirun, to one
rank alone. It goes on from there to the bits of a run that nothing ended."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINERATE, LAUNCHER = sys.argv[1], [sys.argv[2], "--mca", "odls_base_sigkill_timeout", "8", "-n",
                                   "2"] if len(sys.argv) > 2 else []
TRAIN = LAUNCHER + [LINERATE, "train", "--model", "mlp", "--input", "1x8x8", "--classes", "10",
                    "--samples", "640", "--batch", "8", "--threads", "1", "--schedule", "constant"]


def require(holds, what):
    if not holds:
        sys.exit(f"ended_run.py: {what}")


def start(options, sign):
    """A long run, from the moment at which `sign` is there."""
    process = subprocess.Popen(TRAIN + ["--steps", "1000000"] + options, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not sign.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.poll() is not None or not sign.exists():
        process.kill()
        sys.exit(f"ended_run.py: {sign} is missing: {process.communicate()}")
    return process


def ranks_of(process):
    """The ranks that mpirun started, or the process itself."""
    if not LAUNCHER:
        return [process.pid]
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True,
                           text=True).stdout.split()
    return [int(pid) for pid in found if "train" in Path(f"/proc/{pid}/cmdline").read_text()]


def recorded_steps(record):
    """Steps of the Timeline by rank, which linerate reads as it reads the Workload beside it."""
    timeline = json.loads(record.read_text())
    workload = record.with_suffix(".workload.json")
    for verb in (["explain", record],
                 ["whatif", "-w", workload, "--ranks", "4", "--bandwidth", "10Gbit/s"]):
        read = subprocess.run([LINERATE, *map(str, verb)], capture_output=True, text=True)
        require(read.returncode == 0, f"{verb}: {read.stderr}")
    return len(timeline["steps"]) / timeline["ranks"]


def killed_after_the_last_recorded_step(folder):
    record = folder / "killed.json"
    process = start(["--record", str(record), "--record-steps", "10"],
                    folder / "killed.workload.json")
    for pid in ranks_of(process):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    require(recorded_steps(record) == 10,
            "expected the 10 steps recorded before the run was killed")


def ended_by(number, folder, one_rank):
    name = f"{number.name}{'-one' if one_rank else ''}"
    record, losses, kept = (folder / f"{name}{end}" for end in (".json", ".csv", "-kept"))
    options = ["--record", str(record), "--record-steps", "100000", "--losses", str(losses),
               "--checkpoint", str(kept)]
    # The steps from 21 to 30 are recorded, and a checkpoint follows.
    process = start(options + ["--checkpoint-every", "40"], kept / "checkpoint")
    os.kill(ranks_of(process)[-1] if one_rank else process.pid, number)
    out, err = process.communicate(timeout=200)
    require(process.returncode != 0 if LAUNCHER else process.returncode == 128 + number,
            f"{name}: exit {process.returncode}: {err}")
    steps, run = recorded_steps(record), len(losses.read_text().splitlines()) - 1
    require(10 <= steps < 100000, f"{name}: {steps} steps; {err}")
    # mpirun passes on nothing of what ranks print after it was told to end
    if one_rank or not LAUNCHER:
        said = (f"{number.name} ended the run after step {run}; {steps:.0f} recorded steps are "
                "kept; the losses are kept")
        require(said in err, f"{name}: expected {said}, found {err}")
    resumed, whole = (json.loads(subprocess.run(TRAIN + ["--steps", str(run + 2), "--json"] + more,
                                                check=True, capture_output=True,
                                                text=True).stdout)
                      for more in (["--checkpoint", str(kept), "--resume"], []))
    require(resumed["weights_hash"] == whole["weights_hash"],
            f"{name}: other weights after going on")
    print(f"{name}: {steps:.0f} recorded steps and {run} losses, then the same weights")


def ended_with_nothing_to_keep(folder):
    process = start(["--checkpoint", str(folder / "sign"), "--checkpoint-every", "5"],
                    folder / "sign" / "checkpoint")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)  # the second one ends it at once, wherever it is
    process.communicate(timeout=200)
    require(process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM),
            f"exit {process.returncode}")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        killed_after_the_last_recorded_step(folder)
        for number in (signal.SIGTERM, signal.SIGINT) if LAUNCHER else (
                signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
            ended_by(number, folder, one_rank=False)
        if LAUNCHER:
            ended_by(signal.SIGXCPU, folder, one_rank=True)
        else:
            ended_with_nothing_to_keep(folder)


main()
