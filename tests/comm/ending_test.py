#!/usr/bin/env python3
"""Runs each case of a test program that ends its run in an error, in a job of its own.

usage: ending_test.py MPIRUN PROGRAM RANKS [FILTER] [MPIRUN_OPTION ...]

A run that has failed leaves with a status other than 0, whatever its tests say, so what counts is
that every rank prints that its test passed.
"""
import os
import subprocess
import sys

MPIRUN, PROGRAM, RANKS = sys.argv[1:4]
FILTER = sys.argv[4] if len(sys.argv) > 4 else "*"
OPTIONS = sys.argv[5:]
LIMIT = 60  # seconds a case
os.environ["LINERATE_TEST_LIMIT_S"] = str(LIMIT * 2 // 3)  # a rank that hangs says where before


def cases():
    listed = subprocess.run([PROGRAM, "--gtest_list_tests", f"--gtest_filter={FILTER}"],
                            capture_output=True, text=True, check=True)
    suite = ""
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith("."):
            suite = name
        elif name.startswith("  "):
            yield suite + name.strip()


failed = []
for case in cases():
    try:
        done = subprocess.run([MPIRUN, "-n", RANKS, *OPTIONS, PROGRAM, "--gtest_color=no",
                               f"--gtest_filter={case}"], capture_output=True, text=True,
                              timeout=LIMIT)
        output, held = done.stdout + done.stderr, done.stdout.count("[  PASSED  ] 1 test.")
    except subprocess.TimeoutExpired as e:
        output, held = f"{e.stdout}{e.stderr}\nstill running after {LIMIT} s", 0
    if held != int(RANKS):
        failed.append(case)
        print(f"FAILED: {case}: passed on {held} of {RANKS} ranks\n--- output\n{output}\n---")
    else:
        print(f"ok: {case}")
sys.exit(1 if failed else 0)
