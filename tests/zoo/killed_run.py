#!/usr/bin/env python3
"""A run that is killed (SIGKILL) again and again and resumed ends in the bits of an undisturbed
one: killed_run.py LINERATE"""
import json
import random
import subprocess
import sys
import tempfile
import time

COMMAND = [sys.argv[1], "train", "--model", "mlp", "--input", "1x16x16", "--classes", "10",
           "--samples", "640", "--batch", "8", "--steps", "60", "--threads", "1", "--json"]


def main():
    random.seed(1)
    reference = json.loads(subprocess.run(COMMAND, check=True, capture_output=True,
                                          text=True).stdout)
    with tempfile.TemporaryDirectory() as folder:
        resumed = COMMAND + ["--checkpoint", folder, "--checkpoint-every", "1", "--resume"]
        kills = 0
        for _ in range(60):
            process = subprocess.Popen(resumed, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True)
            # From before the first checkpoint to the middle of writing one; at last it may finish.
            deadline = time.monotonic() + random.uniform(0.2, 1.5) * (1 + kills / 4)
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            if process.poll() is None:
                process.kill()
                process.wait()
                kills += 1
                continue
            out, err = process.communicate()
            if process.returncode != 0:
                sys.exit(f"resumed run failed after {kills} kills: {err}")
            got = json.loads(out)
            if got["weights_hash"] != reference["weights_hash"] or got["steps"] != 60:
                sys.exit(f"after {kills} kills: {got['weights_hash']} instead of "
                         f"{reference['weights_hash']}")
            if kills == 0:
                continue  # too fast a machine: again
            print(f"same weights after {kills} kills")
            return
    sys.exit("never finished")


main()
