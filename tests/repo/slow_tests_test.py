#!/usr/bin/env python3
"""Every test that begins first because it is long, or has the label slow, has a sentence that says
why: slow_tests_test.py BUILD CTEST."""
import json
import subprocess
import sys
from pathlib import Path

BUILD, CTEST = Path(sys.argv[1]), sys.argv[2]


def tests():
    """Name and properties of every test that ctest knows."""
    shown = subprocess.run([CTEST, "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True,
                           text=True, check=True)
    for test in json.loads(shown.stdout)["tests"]:
        yield test["name"], {p["name"]: p["value"] for p in test["properties"]}


def main():
    reasons = dict(line.split("\t") for line in (BUILD / "slow-tests.txt").read_text().splitlines())
    slow = {name for name, properties in tests()
            if "slow" in properties.get("LABELS", []) or float(properties.get("COST", 0)) >= 100}
    for name in sorted(slow - reasons.keys()):
        print(f"{name}: slow, and nothing next to it says why; say it: linerate_slow(\"reason\" "
              f"{name})")
    for name in sorted(reasons.keys() - slow):
        print(f"{name}: has a reason for being slow and is neither LONG nor labelled slow; leave "
              "it out")
    if not slow or slow != reasons.keys():
        return 1
    print(f"{len(slow)} slow tests, each with its reason")
    return 0


if __name__ == "__main__":
    sys.exit(main())
