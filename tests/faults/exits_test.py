#!/usr/bin/env python3
"""However a process ends while it has a communicator: no two threads call MPI at a time, nobody
calls it after MPI_Finalize, the job ends in time, and survivors are told who left.

usage: exits_test.py MPIRUN EXIT_RANKS
"""
import re
import subprocess
import sys
import time

MPIRUN, PROGRAM = sys.argv[1:3]
LIMIT = 60.0  # seconds a job: only a hang takes longer

# How rank 1 ends -> what the survivors say of it; None: all ranks end so, and the job succeeds.
WELL = None
WAYS = {
    "exit0": "rank 1 left the job",
    "exit1": "rank 1 left the job",
    "exit_thread": "rank 1 left the job",
    "exit_in_flight": "rank 1 ended the run: it exits with status 0 and collectives under way",
    "exit_waiting": "rank 1 ended the run: it exits with status 1 and collectives under way",
    "action": "rank 1 (left the job|ended the run)",
    "finalize_live": "rank 1 left the job",
    "exit_all": WELL,
    "static": WELL,
    "leaked": WELL,
    "finalize_all": WELL,
    "finalize_after": WELL,
    "destroy_in_flight": WELL,
    # Nothing of ours runs: the launcher names the rank.
    "terminate": "",
    "abort": "",
}
failed = False
for way, said in WAYS.items():
    start = time.monotonic()
    problems = []
    try:
        done = subprocess.run([MPIRUN, "-n", "3", PROGRAM, way], capture_output=True, text=True,
                              timeout=LIMIT)
        code, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as e:
        code, output = -1, f"{e.stdout}{e.stderr}"
        problems.append(f"still running after {LIMIT} s")
    if "VIOLATION" in output:
        problems.append("MPI was called by two threads, or after its end")
    if said is WELL:
        if code != 0:
            problems.append(f"exit {code}, expected 0")
    elif said == "":
        if not re.search(r"rank 1 with PID \d+.*?signal", output, re.S):
            problems.append("the launcher does not name rank 1")
    else:
        if code == 0:
            problems.append("exit 0")
        for rank in (0, 2):
            if not re.search(rf"(said: )?rank {rank}: .*{said}", output):
                problems.append(f"rank {rank} does not say: {said}")
    print(f"{'FAILED' if problems else 'ok'}: {way}: {time.monotonic() - start:.1f} s")
    if problems:
        failed = True
        print("  " + "\n  ".join(problems) + f"\n--- output\n{output}\n---")
sys.exit(1 if failed else 0)
