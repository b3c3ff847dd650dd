#!/usr/bin/env python3
"""A run killed (SIGKILL) in the middle of writing a checkpoint leaves a temporary; the next save
removes it: killed_while_saving.py LINERATE

The first kill comes before the first checkpoint: starting again needs no flag then.
"""
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# 43 MB of weights and as much momentum: writing them takes long enough to be met.
COMMAND = [sys.argv[1], "train", "--model", "mlp", "--input", "3x96x96", "--classes", "10",
           "--samples", "64", "--batch", "8", "--epochs", "1", "--threads", "1",
           "--checkpoint-every", "1"]


def temporaries(folder):
    return sorted(folder.glob("checkpoint.part-*"))


def kill_while_saving(command, folder):
    """Whether the run was killed with its temporary there."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
    while process.poll() is None:
        if temporaries(folder):
            process.send_signal(signal.SIGKILL)
            process.wait()
            return bool(temporaries(folder))
        time.sleep(0.0005)
    sys.exit(f"ended before it was met writing: {process.stderr.read()}")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "ck"
        fresh = [*COMMAND, "--checkpoint", str(folder)]
        for _ in range(20):
            if kill_while_saving(fresh, folder) and not (folder / "checkpoint").exists():
                break
            # The kill came after the rename, or between two saves: again.
            for path in folder.iterdir():
                path.unlink()
        else:
            sys.exit("no kill met a temporary")
        run([*fresh, "--steps", "1"])
        if temporaries(folder):
            sys.exit(f"left: {temporaries(folder)}")
        resumed = [*fresh, "--resume"]
        for _ in range(20):
            if kill_while_saving(resumed, folder):
                break
        else:
            sys.exit("no kill met a temporary")
        if "resumed" not in run(resumed):
            sys.exit("the checkpoint before the kill is gone")
        left = sorted(path.name for path in folder.iterdir())
        if left != ["checkpoint", "lock"]:
            sys.exit(f"expected checkpoint and lock, found {left}")
        print("temporaries of killed runs are gone, their checkpoints are not")


main()
