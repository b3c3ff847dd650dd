#!/usr/bin/env python3
"""The kernel does not let ranks read each other's memory, from the start or in mid-run: results are
right, nobody is blamed, and from the start nothing is printed.

usage: denied_test.py MPIRUN DENIED_RANKS COLLECTIVE_FAULTS
"""
import subprocess
import sys

MPIRUN, DENIED_RANKS, COLLECTIVES = sys.argv[1:4]
failed = False


def run(*command):
    done = subprocess.run([MPIRUN, "-n", "3", *command], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def expect(condition, what, *output):
    global failed
    if not condition:
        failed = True
        print(f"FAILED: {what}\n--- output\n" + "\n".join(map(str, output)) + "\n---")


code, out, err = run(DENIED_RANKS)
if code == 77:
    print("no seccomp here")
    sys.exit(77)
expect(code == 0 and out.count(": right") == 3 and "said" not in err, "denied in mid-run", code,
       out, err)
code, out, err = run(DENIED_RANKS, COLLECTIVES, "none", "none", "0", "20")
expect(code == 0, "denied from the start", code, out, err)
expect(out + err == "", "denied from the start: nothing is printed", out, err)
sys.exit(1 if failed else 0)
