#!/usr/bin/env python3
"""Whether K-FAC by its defaults stays stable under every schedule of the learning rate, next to SGD
at the same rate.

  bench/kfac_curves/schedules.py [--linerate build/release/linerate] [--seeds 5] [--rate 0.1]
                                 [--strategy "ddp+kfac(spd)"]

LeNet on Fashion-MNIST, batch 128; one-cycle, cosine and constant over 75, 100 and 150 steps. Prints
for each, over the seeds, K-FAC's largest loss of a step over that of the first, and its final test
loss next to SGD's; ends with an error if a loss grows beyond 1.5 times the first, or a test loss is
more than 0.05 above SGD's.
"""
import argparse
import sys

from run import MODELS, train

SCHEDULES = ("one-cycle", "cosine", "constant")
STEPS = (75, 100, 150)
MOST_GROWTH, MOST_ABOVE = 1.5, 0.05


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--linerate", default="build/release/linerate")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--strategy", default="ddp+kfac(spd)")
    arguments = parser.parse_args()
    MODELS["lenet"] = (None, 128, 20000)
    holds = True
    for schedule in SCHEDULES:
        for steps in STEPS:
            growth, tests, above = [], [], []
            for seed in range(1, arguments.seeds + 1):
                sgd, kfac = (
                    train(arguments.linerate, "lenet", ["--schedule", schedule, "--optimizer",
                                                        "sgd", *more], arguments.rate, seed, steps)
                    for more in ([], ["--strategy", arguments.strategy]))
                growth.append(max(kfac["losses"]) / kfac["losses"][0])
                tests.append((kfac["test_loss"], sgd["test_loss"]))
                above.append(kfac["test_loss"] - sgd["test_loss"])
            good = max(growth) <= MOST_GROWTH and max(above) <= MOST_ABOVE
            holds &= good
            print(f"{schedule:9} {steps:4} steps   largest loss {max(growth):.2f} x the first   "
                  f"test loss {min(k for k, _ in tests):.3f} .. {max(k for k, _ in tests):.3f}, "
                  f"SGD {min(s for _, s in tests):.3f} .. {max(s for _, s in tests):.3f}, most "
                  f"above {max(above):+.3f}   {'ok' if good else 'FAILS'}", flush=True)
    return not holds


if __name__ == "__main__":
    sys.exit(main())
