#!/usr/bin/env python3
"""Runs that are killed (SIGKILL) and resumed: killed_run.py LINERATE

Killed at any time, again and again, a run ends in the bits of an undisturbed one. Killed in the
middle of writing a checkpoint, it leaves a temporary, which the next save removes. The first of
those kills comes before the first checkpoint: starting again needs no flag then.
"""
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = [sys.argv[1], "train", "--model", "mlp", "--classes", "10", "--batch", "8",
         "--threads", "1"]


def killed(command, is_time):
    """What it printed, or None: it was killed when it was time."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        if is_time():
            process.kill()
            process.wait()
            return None
        time.sleep(0.0005)
    out, err = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}: {err}")
    return out


def run(command):
    return killed(command, is_time=lambda: False)


def at_any_time(folder):
    command = [*TRAIN, "--input", "1x16x16", "--samples", "640", "--steps", "60", "--json"]
    resumed = [*command, "--checkpoint", str(folder), "--checkpoint-every", "1", "--resume"]
    reference, kills = json.loads(run(command)), 0
    for _ in range(60):
        # From before the first checkpoint to the middle of writing one; at last it may finish.
        deadline = time.monotonic() + random.uniform(0.2, 1.5) * (1 + kills / 4)
        out = killed(resumed, lambda: time.monotonic() >= deadline)
        if out is None:
            kills += 1
            continue
        got = json.loads(out)
        if got["weights_hash"] != reference["weights_hash"] or got["steps"] != 60:
            sys.exit(f"after {kills} kills: {got['weights_hash']} instead of "
                     f"{reference['weights_hash']}")
        if kills:  # else too fast a machine: again
            print(f"same weights after {kills} kills")
            return
    sys.exit("never finished")


def while_saving(folder):
    # 43 MB of weights and as much momentum: writing them takes long enough to be met.
    fresh = [*TRAIN, "--input", "3x96x96", "--samples", "64", "--epochs", "1",
             "--checkpoint-every", "1", "--checkpoint", str(folder)]
    resumed = [*fresh, "--resume"]

    def temporaries():
        return sorted(folder.glob("checkpoint.part-*"))

    def kill(command, is_met):
        for _ in range(20):
            if killed(command, temporaries) is not None:
                sys.exit("ended before it was met writing")
            if temporaries() and is_met():
                return
            if command is fresh:  # the kill came after the rename, or between two saves: again
                for path in folder.iterdir():
                    path.unlink()
        sys.exit("no kill met a temporary")

    kill(fresh, lambda: not (folder / "checkpoint").exists())
    run([*fresh, "--steps", "1"])
    if temporaries():
        sys.exit(f"left: {temporaries()}")
    kill(resumed, lambda: True)
    if "resumed" not in run(resumed):
        sys.exit("the checkpoint before the kill is gone")
    left = sorted(path.name for path in folder.iterdir())
    if left != ["checkpoint", "lock"]:
        sys.exit(f"expected checkpoint and lock, found {left}")
    print("temporaries of killed runs are gone, their checkpoints are not")


def main():
    random.seed(1)
    for kills in (at_any_time, while_saving):
        with tempfile.TemporaryDirectory() as folder:
            kills(Path(folder) / "ck")


main()
