#!/usr/bin/env python3
"""The fault matrix: one rank of three commits a fault in a phase; the job ends in time, every
survivor (or the launcher, where it ends them all) names the rank, and nothing is left behind.

usage: matrix.py --mpirun MPIRUN --program collectives=PATH [--program training=PATH]
                 [--sample SECONDS] [--jobs N] [--only REGEX] [--table FILE]

--sample runs a fixed spread of the cells that fits into that time; without it all run. One line a
cell; at the end the table of docs/faults.md, on stdout and to --table.
"""
import argparse
import concurrent.futures
import dataclasses
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 3
TIMEOUT = 3.0  # of the communicator, seconds
# to start, to say farewell, and for the launcher to end the job: only a hang takes longer, however
# loaded the machine
SLACK = 40.0
TRANSPORTS = {"shared memory": [], "TCP": ["--mca", "btl", "tcp,self"]}
CULPRITS = (0, 1)

# What a cell takes, seconds, for --sample: measured on two cores.
COST = {"kill": 1.2, "stop": 4.5, "exit": 1.3, "throw": 1.3, "mismatch": 1.5, "nan": 1.6}
COST_OF_TRAINING = 3.0  # beside: LibTorch starts in every rank, and what is left is resumed

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_gather_v", "all_to_all",
               "broadcast", "barrier")
ALL = ("kill", "stop", "exit", "throw", "mismatch", "nan")

# Which faults a phase knows, by program. NaN needs data that moves.
PROGRAMS = {
    "collectives": {
        "make_world": ALL[:5],
        **{c: ALL for c in COLLECTIVES if c != "barrier"},
        "barrier": ALL[:5],
        "split": ALL[:5],
        "between": ALL[:5],
    },
    # Steps between which a rank computes; checkpoints while which the others wait for rank 0.
    "training": {
        **{phase: ALL for phase in ("set_up", "first_step", "step", "end_of_epoch", "checkpoint")},
        # Behind step(), while weights wait for the second half: what a rank does itself there is a
        # fault of "step".
        "between_halves": ("kill", "stop"),
    },
}
# What a run may leave: its checkpoint, which has to be whole, and the lock, which the kernel has
# given back.
KEPT = {"training": {"run/checkpoint", "run/lock"}}


@dataclasses.dataclass(frozen=True)
class Cell:
    program: str
    phase: str
    fault: str
    transport: str
    culprit: int

    def __str__(self):
        return f"{self.program}/{self.phase}/{self.fault}/{self.transport}/rank {self.culprit}"


@dataclasses.dataclass
class Outcome:
    cell: Cell
    seconds: float
    named_by: str   # "survivors", "launcher", or "" where nobody has to
    problems: list
    output: str


def all_cells():
    return [Cell(program, phase, fault, transport, culprit) for program, phases in PROGRAMS.items()
            for phase, faults in phases.items() for fault in faults for transport in TRANSPORTS
            for culprit in CULPRITS]


def sample(cells, seconds):
    """Cells in a fixed order that jumps through the list, as long as their sum fits."""
    step = next(s for s in range(int(len(cells) * 0.618), len(cells) + 1)
                if s > 0 and math.gcd(s, len(cells)) == 1)
    chosen, spent = [], 0.0
    for i in range(len(cells)):
        cell = cells[i * step % len(cells)]
        cost = COST[cell.fault] + (COST_OF_TRAINING if cell.program == "training" else 0)
        if spent + cost <= seconds:
            chosen.append(cell)
            spent += cost
    return chosen


def left_behind(marker):
    """Processes of this cell that still exist: its marker stands in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if marker.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def run(cell, programs, mpirun):
    folder = tempfile.mkdtemp(prefix="fault-")
    marker = f"LINERATE_FAULT_CELL={os.path.basename(folder)}"
    environment = {**os.environ, "TMPDIR": folder, "LINERATE_FAULT_CELL": os.path.basename(folder)}

    def command(fault):
        return [mpirun, "-n", str(RANKS), "--mca", "btl_vader_backing_directory", folder,
                *TRANSPORTS[cell.transport], programs[cell.program], fault, cell.phase,
                str(cell.culprit), str(TIMEOUT)]

    start = time.monotonic()
    child = subprocess.Popen(command(cell.fault), env=environment, cwd=folder,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace")
    problems = []
    try:
        output, _ = child.communicate(timeout=TIMEOUT + SLACK)
    except subprocess.TimeoutExpired:
        problems.append(f"still running after {TIMEOUT + SLACK:.0f} s")
        for pid in left_behind(marker):
            os.kill(pid, signal.SIGKILL)
        output, _ = child.communicate()
    seconds = time.monotonic() - start
    processes = left_behind(marker)
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    if processes:
        problems.append(f"processes left behind: {processes}")
    kept = KEPT.get(cell.program, set())
    files = {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder)
             for name in names}
    if files - kept:
        problems.append(f"files left behind: {files - kept}")
    if cell.program == "training":
        again = subprocess.run(command("none"), env=environment, cwd=folder, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120)
        if again.returncode != 0:
            problems.append(f"what it left cannot be resumed: {again.stdout}")
    shutil.rmtree(folder, ignore_errors=True)
    named_by = judge(cell, child.returncode, output, problems)
    return Outcome(cell, seconds, named_by, problems, output)


def judge(cell, code, output, problems):
    """Who names the culprit; adds what is wrong to `problems`."""
    if cell.fault == "nan" and cell.program == "collectives":
        if code != 0:
            problems.append(f"exit {code}, though NaN is a value like any other")
        return ""
    if code == 0:
        problems.append("exit 0")
    survivors = set(range(RANKS)) - {cell.culprit}
    # A rank says its error itself, or the deadline of the start does; "rank 1 is stopped" stands on
    # a line of its own.
    said = {r: "\n".join(re.findall(rf"(?:said by|rank) {r}: (.*)", output)) for r in survivors}
    silent = [r for r in survivors if not re.search(rf"\brank(s)? {cell.culprit}\b", said[r])]
    if not silent:
        return "survivors"
    if (cell.phase == "make_world"
        and "Primary job  terminated normally, but 1 process returned" in output):
        # it ends a job of which a rank has not come to MPI_Init, and may not say which
        return "launcher"
    by_signal = re.search(rf"rank {cell.culprit} with PID \d+.*?exited on\s+signal", output, re.S)
    by_status = re.search(rf"Process name: \[\[\d+,\d+\],{cell.culprit}\]", output)
    if by_signal or by_status:
        return "launcher"
    problems.append(f"not named by rank {silent[0]}, nor by the launcher")
    return ""


def table(outcomes):
    """Markdown: phases down, faults across; who names the culprit and the longest time over
    transports and culprits."""
    lines = []
    for program, phases in PROGRAMS.items():
        if not any(o.cell.program == program for o in outcomes):
            continue
        lines += [f"| {program} | " + " | ".join(ALL) + " |", "|---" * (len(ALL) + 1) + "|"]
        for phase in phases:
            row = []
            for fault in ALL:
                cells = [o for o in outcomes
                         if (o.cell.program, o.cell.phase, o.cell.fault) == (program, phase, fault)]
                if not cells:
                    row.append("")
                    continue
                who = " / ".join(sorted({o.named_by or "same bits" for o in cells}))
                failed = sum(bool(o.problems) for o in cells)
                row.append(f"{who}, {max(o.seconds for o in cells):.1f} s"
                           + (f", **{failed} failed**" if failed else ""))
            lines.append(f"| {phase} | " + " | ".join(row) + " |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--sample", type=float)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--table")
    options = parser.parse_args()
    programs = dict(p.split("=", 1) for p in options.program)
    programs = {name: os.path.abspath(path) for name, path in programs.items()}
    mpirun = os.path.abspath(options.mpirun)
    cells = [c for c in all_cells() if c.program in programs and re.search(options.only, str(c))]
    if options.sample:
        cells = sample(cells, options.sample)
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda cell: run(cell, programs, mpirun), cells):
            outcomes.append(outcome)
            by = f", named by {outcome.named_by}" if outcome.named_by else ""
            print(f"{'FAILED' if outcome.problems else 'ok'}: {outcome.cell}: "
                  f"{outcome.seconds:.1f} s{by}", flush=True)
            if outcome.problems:
                print("  " + "\n  ".join(outcome.problems) + f"\n--- output\n{outcome.output}\n---",
                      flush=True)
    text = table(outcomes)
    print(text)
    if options.table:
        with open(options.table, "w") as f:
            f.write(text)
    failed = sum(bool(o.problems) for o in outcomes)
    print(f"{len(outcomes)} cells, {failed} failed, {sum(o.seconds for o in outcomes):.0f} s")
    return 1 if failed or not outcomes else 0


sys.exit(main())
