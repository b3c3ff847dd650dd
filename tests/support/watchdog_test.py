#!/usr/bin/env python3
"""A test that hangs is named with the stacks of its threads; one that dies is named. usage:
watchdog_test.py PROGRAM"""
import os
import re
import subprocess
import sys

PROGRAM = sys.argv[1]


def run(test):
    environment = dict(os.environ, LINERATE_TEST_LIMIT_S="1")
    done = subprocess.run([PROGRAM, "--gtest_brief=1", f"--gtest_filter={test}"],
                          capture_output=True, text=True, env=environment, timeout=100)
    return done.returncode, done.stdout + done.stderr


problems = []


def expect(test, status, *patterns):
    found, output = run(test)
    if not status(found):
        problems.append(f"{test}: status {found}\n{output}")
    problems.extend(f"{test}: no \"{p}\" in\n{output}" for p in patterns
                    if not re.search(p, output))


expect("Hangs.*", lambda s: s == 1, r"HUNG: Hangs\.WhileAnotherThreadSpins has run for more than 1 "
                                    r"s", "waits_for_ever", "spins_for_ever")
expect("Dies.*", lambda s: s != 0, r"the program died in the test Dies\.ByAnAbort")
expect("Ends.*", lambda s: s == 0, r"PASSED")
print("\n".join(problems))
sys.exit(1 if problems else 0)
