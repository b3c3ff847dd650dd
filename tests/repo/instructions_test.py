#!/usr/bin/env python3
"""tools/instructions must fail where counts differ, in either direction, and pass what is alike."""
import json
import re
import subprocess
import sys
import tempfile
import unittest

from the_tree import ROOT
EXPECTED = json.loads((ROOT / "bench/instructions/counts.json").read_text())["instructions"]


class Counts(unittest.TestCase):
    def compare(self, measured):
        """Exit status and output."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(measured, file)
            file.flush()
            run = subprocess.run([sys.executable, ROOT / "tools/instructions", "--measured",
                                  file.name], capture_output=True, text=True)
        return run.returncode, run.stdout

    def changed(self, factor):
        name, count = next(iter(EXPECTED.items()))
        return name, {**EXPECTED, name: int(count * factor)}

    def test_five_workloads_are_counted(self):
        self.assertEqual(len(EXPECTED), 5)

    def test_the_bench_page_has_the_counts_of_now(self):
        """bench/README.md: | run | before | common work once | now | now / before |, in 1e9."""
        page = (ROOT / "bench/README.md").read_text()
        rows = {name: (float(before), float(now), float(ratio))
                for name, before, now, ratio in re.findall(r"^\| ([^|]+) \| ([\d.]+)e9 \| [\d.]+e9 "
                                                           r"\| ([\d.]+)e9 \| ([\d.]+) \|$", page,
                                                           re.M)}
        self.assertEqual(rows.keys(), EXPECTED.keys())
        for name, (before, now, ratio) in rows.items():
            self.assertAlmostEqual(now, EXPECTED[name] / 1e9, delta=6e-4, msg=name)
            # "before" has three digits: of explain a fiftieth more or less.
            self.assertAlmostEqual(ratio, now / before, delta=0.02, msg=name)

    def test_equal_counts_pass(self):
        status, output = self.compare(EXPECTED)
        self.assertEqual(status, 0, output)

    def test_a_tenth_is_tolerated(self):
        for factor in (0.91, 1.09):
            status, output = self.compare(self.changed(factor)[1])
            self.assertEqual(status, 0, output)

    def test_more_fails_and_is_named(self):
        name, measured = self.changed(1.11)
        status, output = self.compare(measured)
        self.assertEqual(status, 1)
        self.assertRegex(output, f"{name} .*FAILED: slower")
        self.assertEqual(output.count("FAILED"), 1)

    def test_fewer_asks_for_an_update(self):
        name, measured = self.changed(0.89)
        status, output = self.compare(measured)
        self.assertEqual(status, 1)
        self.assertRegex(output, f"{name} .*FAILED: faster; run tools/instructions --update")

    def test_a_workload_that_only_one_side_knows_fails(self):
        name = next(iter(EXPECTED))
        for measured in ({**EXPECTED, "new": 1}, {k: v for k, v in EXPECTED.items() if k != name}):
            status, output = self.compare(measured)
            self.assertEqual(status, 1)
            self.assertIn("tools/instructions --update", output)


if __name__ == "__main__":
    unittest.main()
