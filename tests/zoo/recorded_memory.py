#!/usr/bin/env python3
"""The memory of a recorded run does not grow with its steps: recorded_memory.py MPIRUN LINERATE

It did, by .7 MB a step: small blocks that stayed between large ones kept the C library from using
these again. Steps then paid for new memory, and T_1 was too long."""
import os
import re
import subprocess
import sys
import tempfile

# Run by mpirun, for each rank: prints the most memory that its command held, in MiB.
RANK = """import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(f"held {usage.ru_maxrss // 1024} MiB", flush=True)
sys.exit(os.waitstatus_to_exitcode(status))"""
MOST_MORE = 64  # MiB


def held(steps, folder):
    done = subprocess.run(
        [sys.argv[1], "-n", "2", sys.executable, "-c", RANK, sys.argv[2], "train", "--model", "mlp",
         "--steps", str(steps), "--record-steps", str(steps), "--threads", "1", "--record",
         os.path.join(folder, "run.json")],
        capture_output=True, text=True, check=True)
    return max(int(n) for n in re.findall(r"held (\d+) MiB", done.stdout))


def main():
    with tempfile.TemporaryDirectory() as folder:
        few, many = held(40, folder), held(400, folder)
    print(f"40 steps: {few} MiB; 400 steps: {many} MiB")
    if many > few + MOST_MORE:
        sys.exit(f"expected at most {few + MOST_MORE} MiB, found {many}: steps leave small blocks")


if __name__ == "__main__":
    main()
