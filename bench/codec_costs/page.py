#!/usr/bin/env python3
"""Makes docs/papers/network-and-compression.md anew: what its commands print, and its counts of
setups in which compression pays.

  bench/codec_costs/page.py [build/release/linerate]

A block that begins with "$ linerate" gets what that prints now; w.json is the log of
../shared/data, imported. Rows of counts are those of pays.py. All else stays as it is written.
"""
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from pays import counts

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/papers/network-and-compression.md"
LOG = ROOT.parent / "shared/data/per_gradient/resnet50.bk.log"
RATES = (1, 10, 25, 100)


def printed(program, command, folder):
    """The table, without what is said below it."""
    done = subprocess.run([program, *shlex.split(command)[1:]], cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"page: {command}: {done.stderr.strip()}")
    said = re.compile(r"note: |ratio: |exposed: |\S+: \d+ gradients")
    return [line.rstrip() for line in done.stdout.rstrip().splitlines() if not said.match(line)]


def block(program, folder, text):
    """`text`: the command as the page has it, on one line or on several that end with a \\."""
    indent, command = re.match(r"( *)\$ (.*)", text, re.S).groups()
    lines = printed(program, re.sub(r"\\\n\s*", "", command), folder)
    return text + "\n".join(indent + line if line else "" for line in lines) + "\n"


def cells(found, column):
    return " | ".join("{} of {}".format(*found[rate, column]) for rate in RATES)


def main():
    program = pathlib.Path(sys.argv[1]
                           if len(sys.argv) > 1 else ROOT / "build/release/linerate").resolve()
    if not LOG.exists():
        sys.exit(f"page: {LOG} is absent")
    text = PAGE.read_text()
    with tempfile.TemporaryDirectory(prefix="linerate-page-") as folder:
        subprocess.run([program, "import", LOG, "--add-cost", LOG.with_name("cuda_vec_add.log"),
                        "--step-time", "128.0858ms", "-o", "w.json"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        text = re.sub(r"(?<=```\n)( *\$ linerate (?:[^\n]*\\\n)*[^\n]*\n)(?:(?! *```)[^\n]*\n)*",
                      lambda m: block(program, folder, m[1]), text)
    found, batches, _ = counts(program, [])
    paper, _, _ = counts(program, ["--preset", "agarwal2021"])
    for label, row in {"predicted, `whatif`": cells(found, "compressors"),
                       "predicted, `--preset agarwal2021`": cells(paper, "compressors"),
                       "fp16's hook, predicted": cells(found, "fp16")}.items():
        text = re.sub(rf"\| {re.escape(label)} \|[^\n]*", f"| {label} | | {row} |", text)
    small, middle, large = batches[10]
    text = re.sub(r"Of the\s+\d+\s+setups, \d+ have the smallest of three batches, \d+ the middle "
                  r"and \d+ the largest",
                  f"Of the {small + middle + large}\nsetups, {small} have the smallest of three "
                  f"batches, {middle} the middle and {large} the largest", text)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
