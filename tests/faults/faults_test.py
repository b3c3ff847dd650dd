#!/usr/bin/env python3
"""One rank of an MPI job stops, dies, comes late, leaves or disagrees: every survivor says who, in time, and the job ends.

usage: faults_test.py MPIRUN FAULT_RANKS [FAULT ...]
"""
import os
import re
import subprocess
import sys
import time

MPIRUN, PROGRAM = sys.argv[1:3]
WANTED = sys.argv[3:]
TIMEOUT = 3.0  # of the communicator, seconds
SLACK = 40.0   # to start, to say farewell, and for the launcher to end the job: only a hang takes longer, however loaded the machine
failures = []


def run(fault, ranks, culprit, checked, elements):
    start = time.monotonic()
    done = subprocess.run([MPIRUN, "-n", str(ranks), PROGRAM, fault, str(culprit), str(TIMEOUT), checked, str(elements)],
                          capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr + done.stdout, time.monotonic() - start


def expect(condition, what, output):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}\n--- output\n{output}\n---")


def said(output):
    """What each rank reported: {rank: message}, from lines such as 'said: rank 1: all-reduce ...'."""
    return {int(m[1]): m[2] for m in re.finditer(r"said: rank (\d+): (.*)", output)}


def names_the_culprit(fault, phrase, ranks, culprit, checked, elements):
    code, output, seconds = run(fault, ranks, culprit, checked, elements)
    label = f"{fault}, {ranks} ranks, {checked}, {elements} elements"
    expect(code == 4, f"{label}: exit 4, found {code}", output)
    messages = said(output)
    for rank in set(range(ranks)) - {culprit}:
        expect(f"rank {culprit} {phrase}" in messages.get(rank, ""), f"{label}: rank {rank} names rank {culprit}", output)
        expect('"grad 4"' in messages.get(rank, ""), f"{label}: rank {rank} names the operation", output)
    expect(seconds < TIMEOUT + SLACK, f"{label}: ended after {seconds:.1f} s", output)
    print(f"ok: {label}: {seconds:.1f} s")


def stop():
    for ranks, checked, elements in ((2, "unchecked", 1000), (4, "unchecked", 1_000_000), (4, "checked", 1000)):
        names_the_culprit("stop", "gave no sign of life", ranks, 2 % ranks, checked, elements)


def late():
    for checked, elements in (("unchecked", 1_000_000), ("checked", 1000)):
        names_the_culprit("late", "is late", 4, 1, checked, elements)


def leave():
    names_the_culprit("leave", "left the job", 3, 1, "unchecked", 1000)


def stop_at_exit():
    """The others are done and wait to exit: they name the rank that never comes, instead of hanging in MPI_Finalize."""
    code, output, seconds = run("stop-late", 3, 1, "unchecked", 1000)
    expect(code == 4, f"stop at exit: exit 4, found {code}", output)
    for rank in (0, 2):
        expect(f"rank {rank}: waiting to exit: rank 1 gave no sign of life" in output, f"stop at exit: rank {rank} names rank 1", output)
    expect(seconds < TIMEOUT + SLACK, f"stop at exit: ended after {seconds:.1f} s", output)
    print(f"ok: stop at exit: {seconds:.1f} s")


def fail_at_exit():
    """A rank that fails when the others are done fails the job."""
    code, output, seconds = run("fail-late", 3, 1, "unchecked", 1000)
    expect(code in (3, 4), f"fail at exit: exit 3 or 4, found {code}", output)
    expect(seconds < SLACK, f"fail at exit: ended after {seconds:.1f} s", output)
    print(f"ok: fail at exit: {seconds:.1f} s")


def throw():
    """The rank's own error comes first; the launcher reports the first exit status, its 3 or a survivor's 4."""
    code, output, _ = run("throw", 3, 0, "unchecked", 1000)
    expect(code in (3, 4), f"throw: exit 3 or 4, found {code}", output)
    expect("said: weights.bin: truncated" in output, "throw: the culprit's own message", output)
    for rank in (1, 2):
        expect("rank 0 left the job" in said(output).get(rank, ""), f"throw: rank {rank} names rank 0", output)
    print("ok: throw")


def kill():
    """Under plain mpirun the launcher ends the job at once and names the rank."""
    code, output, seconds = run("kill", 3, 2, "unchecked", 1000)
    expect(code != 0, f"kill: exit {code}", output)
    expect(re.search(r"rank 2 .*signal 9", output, re.S), "kill: the launcher names rank 2", output)
    expect(seconds < TIMEOUT + SLACK, f"kill: ended after {seconds:.1f} s", output)
    print(f"ok: kill: {seconds:.1f} s")


def mismatch():
    """All ranks read the same two sides."""
    code, output, _ = run("mismatch", 4, 3, "checked", 1000)
    expect(code == 4, f"mismatch: exit 4, found {code}", output)
    said_so = re.findall(r"said: ranks disagree on the count .*rank 0 runs .*1000 f32.*rank 3 runs .*1001 f32", output)
    expect(len(said_so) == 4, f"mismatch: 4 ranks say so, found {len(said_so)}", output)
    # Large arrays, nobody looks before: announced sizes differ where ranks read each other's memory, messages where they do not.
    code, output, seconds = run("mismatch", 3, 1, "unchecked", 1_000_000)
    expect(code == 4, f"unchecked mismatch: exit 4, found {code}", output)
    expect("the ranks run different operations here" in output, "unchecked mismatch: says so", output)
    expect(seconds < SLACK, f"unchecked mismatch: ended after {seconds:.1f} s", output)
    print("ok: mismatch")


def groups():
    """Even and odd ranks have a group each. Who waits for the culprit in its group names both; the others, who are done and
    wait for all, hear of the culprit too, and nobody blames the rank that is held up in the group."""
    for fault, phrase in (("stop", "gave no sign of life"), ("late", "is late"), ("leave", "left the job")):
        for checked, elements in (("unchecked", 1_000_000), ("checked", 1000)):
            code, output, seconds = run(f"group-{fault}", 4, 3, checked, elements)
            label = f"groups: {fault}, {checked}"
            expect(code == 4, f"{label}: exit 4, found {code}", output)
            messages = said(output)
            for rank in (0, 1, 2):
                expect(f"rank 3 {phrase}" in messages.get(rank, ""), f"{label}: rank {rank} names rank 3", output)
            expect('"grad 4" (number 4) in group "parity"' in messages.get(1, ""), f"{label}: rank 1 names the group", output)
            expect(seconds < TIMEOUT + SLACK, f"{label}: ended after {seconds:.1f} s", output)
            print(f"ok: {label}: {seconds:.1f} s")


def lonely():
    """srun without PMI: each process is a job of its own, and says so instead of training on the others' checkpoint."""
    slurm = {**os.environ, "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
    done = subprocess.run([PROGRAM, "none", "0", str(TIMEOUT), "unchecked", "10"], capture_output=True, text=True, timeout=60, env=slurm)
    output = done.stdout + done.stderr
    expect(done.returncode == 3, f"lonely: exit 3, found {done.returncode}", output)
    for part in ("rank 1 of 4", "SLURM_NTASKS", "srun --mpi=pmix"):
        expect(part in output, f"lonely: says {part}", output)
    print("ok: lonely")


CASES = {f.__name__: f for f in (lonely, stop, late, leave, stop_at_exit, fail_at_exit, throw, kill, mismatch, groups)}
for case in WANTED or CASES:
    CASES[case]()
sys.exit(1 if failures else 0)
