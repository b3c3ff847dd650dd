#!/usr/bin/env python3
"""The story of tools/demo: demo_test.py LINERATE

The link is slow enough for the network to hold back the job on any machine. Each part of the story
must be there: a network-bound verdict, an advised change, its prediction, the changed job's run,
their comparison, the losses of both, and a page with all of it. No time is asserted.
"""
import csv
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 40
DEMO = Path(__file__).resolve().parents[2] / "tools/demo"
PARTS = ("Measure", "Explain", "Calibrate", "Advise", "Change", "Compare", "Report")
HEADINGS = ("Where a step goes", "Loss at equal steps", "Loss over time", "Ranked strategies",
            "One step over time")


def losses_of(file):
    with open(file, newline="") as rows:
        return [float(row["loss"]) for row in csv.DictReader(rows)]


def seen_in_page(html, advice, steps):
    """What the page shows, and whether it does."""
    lead = html[:html.index("<h3>")]  # the answer stands first
    return [*((f"<h3>{heading}" in html, f"the page shows: {heading}") for heading in HEADINGS),
            ("A step takes " in lead and advice["best"] in lead, "the answer comes first"),
            ("was predicted to take" in lead, "the prediction stands next to it"),
            (f"After {steps} steps the loss is" in lead, "so do the losses at equal steps"),
            ("With ddp the job is network-bound" in lead, "so does the verdict"),
            ("<th>Median of a step</th>" in html, "predicted and measured parts are a table"),
            ("Advice for mlp on 2 ranks" in html, "the advice has its section")]


def told(text, out):
    """What the demo tells, and whether it does."""
    explained, advice, predicted, after = (
        json.loads((out / f"{name}.json").read_text())
        for name in ("explain", "advice", "predicted", "after"))
    before_loss, after_loss = losses_of(out / "before.csv"), losses_of(out / "after.csv")
    return [*((re.search(rf"^\d\. {part}:", text, re.M), f"part {part}") for part in PARTS),
            (len(text.splitlines()) < 80, "it prints less than 80 lines"),
            (explained["verdict"] == "network-bound", f"verdict {explained['verdict']}"),
            (advice["verdict"] in ("change", "inconclusive"), advice["sentence"]),
            (advice["best"] != advice["current"] == "ddp", f"to do: {advice['best']}"),
            (predicted["strategy"] == after["strategy"] == advice["best"],
             "the advised strategy is predicted, then trained"),
            (re.search(r"^  step +\d.* %$", text, re.M), "compare prints the step"),
            (len(before_loss) == len(after_loss) == STEPS, "both jobs took all steps"),
            (after_loss[-1] < after_loss[0], "the changed job learns"),
            *seen_in_page((out / "report.html").read_text(), advice, STEPS)]


def main():
    with tempfile.TemporaryDirectory(prefix="linerate-demo-") as scratch:
        out = Path(scratch) / "out"
        command = [DEMO, "--build", Path(sys.argv[1]).resolve().parent, "--link", "100Mbit/s",
                   "--steps", str(STEPS), "--budget", "3s", out]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        if done.returncode != 0:
            sys.exit(f"tools/demo ended with status {done.returncode}\n{done.stdout}{done.stderr}")
        short = [what for ok, what in told(done.stdout, out) if not ok]
    if short:
        sys.exit("\n".join([done.stdout, *(f"SHORT {what}" for what in short)]))


main()
