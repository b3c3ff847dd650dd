#!/usr/bin/env python3
"""bench/validation must find the step of recorded blocks, whoever of the ranks runs ahead."""
import unittest

from the_tree import module_of

VALIDATION = module_of("bench/validation")


def timeline(blocks, alone_ms, ahead_ms):
    """Steps of 60 ms with inverses and 40 ms without, in blocks of four. Rank 0 begins those
    without `ahead_ms` before rank 1. Ranks compute alone between blocks, and in a step that is not
    recorded."""
    steps, at, index = [], 0, 4
    for _ in range(blocks):
        for kind, length_ms in (("inverses", 60), ("plain", 40)) * 2:
            for rank in (0, 1):
                begin = at - (ahead_ms if (rank, kind) == (0, "plain") else 0)
                steps.append({"rank": rank, "index": index, "variant": kind,
                              "start_ns": int(begin * 1e6)})
            at, index = at + length_ms, index + 1
        at, index = at + alone_ms, index + 1
    return {"steps": steps}


class StepOf(unittest.TestCase):
    def test_blocks_of_computing_alone_and_ranks_that_run_ahead_change_nothing(self):
        for blocks in (1, 2, 5):
            for alone_ms in (0, 130, 5000):
                for ahead_ms in (0, 14):
                    found = VALIDATION.step_of(timeline(blocks, alone_ms, ahead_ms))
                    self.assertAlmostEqual(found, 0.050, 9)

    def test_a_kind_that_no_step_follows_is_left_out(self):
        steps = timeline(3, 130, 0)["steps"]
        steps.append({"rank": 0, "index": 19, "variant": "last", "start_ns": 10**10})
        self.assertAlmostEqual(VALIDATION.step_of({"steps": steps}), 0.050, 9)


if __name__ == "__main__":
    unittest.main()
