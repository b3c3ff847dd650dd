#!/usr/bin/env python3
""".ci/stages: what runs meanwhile is shown and counted, and ends with the script: a failure must
not pass, nor a process stay. Stages that have turns each begin first once, and what there was no
time for is named."""
import subprocess
import sys
import time
import unittest
from pathlib import Path

STAGES = Path(__file__).resolve().parents[2] / ".ci/stages"


def run(script, limit_s=60):
    done = subprocess.run(["bash", "-c", f"source {STAGES}\n{script}"], capture_output=True,
                          text=True, timeout=limit_s)
    return done.returncode, done.stdout


class Meanwhile(unittest.TestCase):
    def test_is_shown_when_it_is_joined(self):
        status, shown = run('one() { stage inner echo from-inner; }\nmeanwhile one\nstage outer '
                            'echo from-outer\njoined\nstage last echo end')
        self.assertEqual(status, 0)
        places = [shown.index(text) for text in ("\nfrom-outer", "\nfrom-inner", "\nend")]
        self.assertEqual(places, sorted(places))

    def test_fails_the_script_where_it_is_joined(self):
        status, shown = run('one() { stage inner false; stage after echo not-reached; }\nmeanwhile '
                            'one\nstage outer true\njoined\nstage last echo end')
        self.assertNotEqual(status, 0)
        self.assertIn("== inner", shown)
        self.assertNotIn("\nnot-reached", shown)
        self.assertNotIn("\nend", shown)

    def test_each_of_several_counts(self):
        for bad in ("one", "two"):
            status, _ = run(f'one() {{ [[ {bad} != one ]]; }}\ntwo() {{ [[ {bad} != two ]]; }}\n'
                            'meanwhile one\nmeanwhile two\njoined')
            self.assertNotEqual(status, 0, bad)

    def test_ends_with_all_its_processes_when_a_stage_fails(self):
        status, shown = run(
            'one() { bash -c \'echo "inner is $$"; sleep 1000 & wait\'; }\nmeanwhile one\n'
            'until grep -q inner "${beside[@]}"; do sleep .1; done\nstage outer false')
        self.assertNotEqual(status, 0)
        self.assertIn("inner is ", shown)
        inner = shown.split("inner is ")[1].split()[0]
        for _ in range(100):
            if not alive(inner):
                return
            time.sleep(0.1)
        self.fail("it still runs")


class Turns(unittest.TestCase):
    LATE = "late() { SECONDS=1000; echo ran-late; }\n"
    NAMES = ("a", "b", "c")

    def ran(self, script):
        status, shown = run("".join(f"{name}() {{ echo ran-{name}; }}\n" for name in self.NAMES)
                            + script)
        left_out = [line for line in shown.splitlines() if "left out" in line]
        return status, [line[len("ran-"):] for line in shown.splitlines()
                        if line.startswith("ran-")], left_out

    def test_each_begins_first_once(self):
        orders = [self.ran(f"in_turn {first} 10 a b c") for first in range(848, 851)]
        self.assertEqual({order[0] for _, order, _ in orders}, set(self.NAMES))
        for status, order, left_out in orders:
            self.assertEqual((status, sorted(order), left_out), (0, list(self.NAMES), []))

    def test_what_there_was_no_time_for_is_named(self):
        status, order, left_out = self.ran(self.LATE + "in_turn 4 10 a late b c")
        self.assertEqual((status, order), (0, ["a", "late"]))
        self.assertEqual(left_out, ["== left out, because 10 minutes had passed: b c"])

    def test_a_failure_ends_the_script(self):
        status, order, _ = self.ran(
            "bad() { stage inner false; echo ran-on; }\nin_turn 0 10 a bad b")
        self.assertNotEqual(status, 0)
        self.assertEqual(order, ["a"])


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(unittest.main())
