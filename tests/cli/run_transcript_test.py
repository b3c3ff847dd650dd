#!/usr/bin/env python3
"""What run_transcript.py lets pass: tables of any measured width, and nothing else."""
import unittest

from run_transcript import matches

UNITS = ("{:.0f} us", "{:.2f} ms", "{:.1f} ms", "{:.1f} s", "{:.4f} minutes")


def table(step, exposed):
    """A table as linerate prints it: right-aligned columns, two blanks apart, as wide as their
    widest cell."""
    rows = [["strategy", "ranks", "step", "exposed"], ["ddp", "2", step, exposed]]
    widths = [max(len(r[c]) for r in rows) for c in range(4)]
    return ["  ".join([r[0].ljust(widths[0]),
                       *(cell.rjust(w) for cell, w in zip(r[1:], widths[1:]))]) for r in rows]


class Widths(unittest.TestCase):
    def test_a_table_fits_whatever_it_measured(self):
        for step in UNITS:
            for exposed in UNITS:
                for value in (1, 883, 12345.678):
                    got = table(step.format(value), exposed.format(value))
                    # the transcript was written where numbers had another width
                    for width in UNITS:
                        header = table(width.format(7), width.format(7))[0]
                        self.assertTrue(matches([header, "ddp  2  <*>"], got), got)

    def test_columns_may_not_run_together_or_change(self):
        self.assertFalse(matches(["a  b"], ["a b"]))
        self.assertFalse(matches(["a b"], ["a  b"]))
        self.assertFalse(matches(["strategy  ranks  step"], ["strategy  step  ranks"]))
        self.assertFalse(matches(["  a"], ["a"]))

    def test_dots_stand_for_lines_and_stars_for_anything(self):
        self.assertTrue(matches(["a", "...", "z <*> z"], ["a", "b", "c", "z  12.3 z"]))
        self.assertTrue(matches(["...", "z"], ["z"]))
        self.assertFalse(matches(["a", "...", "z"], ["a", "b"]))
        self.assertTrue(matches(["<*>.(x)"], ["any  thing.(x)"]))
        self.assertFalse(matches(["<*>.(x)"], ["any  thing,(x)"]))


unittest.main()
