#!/usr/bin/env python3
"""One rank of an MPI job stops, dies, comes late, leaves or disagrees: every survivor says who, in
time, and the job ends. However a process ends while it has a communicator, no two threads call MPI
at a time, and nobody calls it after MPI_Finalize.

usage: faults_test.py MPIRUN FAULT_RANKS [FAULT ...]
"""
import dataclasses
import os
import re
import subprocess
import sys
import time

MPIRUN, PROGRAM = sys.argv[1:3]
TIMEOUT = 3.0  # of the communicator, seconds
# to start, to say farewell, and for the launcher to end the job: only a hang takes longer, however
# loaded the machine
SLACK = 40.0
SMALL, LARGE = 1000, 1_000_000


@dataclasses.dataclass
class Case:
    fault: str
    ranks: int
    culprit: int
    checked: bool = False
    elements: int = SMALL
    codes: tuple = (4,)  # (): any error
    survivors: str = ""  # each says "rank CULPRIT " and this
    of: str = ""         # and what it was in; "" for any
    of_rank: int = -1    # only this one says the latter; -1: each
    prints: tuple = ()   # patterns, each so often at least
    times: int = 1

    def __str__(self):
        return (f"{self.fault}, {self.ranks} ranks, {'checked' if self.checked else 'unchecked'}, "
                f"{self.elements} elements")


SILENT, LATE, LEFT = "gave no sign of life", "is late", "left the job"
GRAD, IN_GROUP = '"grad 4"', '"grad 4" (number 4) in group "parity"'

CASES = {
    "stop": [Case("stop", ranks, 2 % ranks, checked, elements, survivors=SILENT, of=GRAD)
             for ranks, checked, elements in ((2, False, SMALL), (4, False, LARGE),
                                              (4, True, SMALL))],
    "late": [Case("late", 4, 1, checked, elements, survivors=LATE, of=GRAD)
             for checked, elements in ((False, LARGE), (True, SMALL))],
    "leave": [Case("leave", 3, 1, survivors=LEFT, of=GRAD)],
    # The others are done and wait to exit: they name the rank that never comes, instead of hanging
    # in MPI_Finalize.
    "stop_at_exit": [Case("stop-late", 3, 1, prints=tuple(
        f"rank {r}: waiting to exit: rank 1 gave no sign of life" for r in (0, 2)))],
    # A rank that fails when the others are done fails the job.
    "fail_at_exit": [Case("fail-late", 3, 1, codes=(3, 4))],
    # The rank's own error comes first; the launcher reports the first exit status, its 3 or a
    # survivor's 4.
    "throw": [Case("throw", 3, 0, codes=(3, 4), survivors=LEFT,
                   prints=("said: weights.bin: truncated",))],
    # Under plain mpirun the launcher ends the job at once and names the rank.
    "kill": [Case("kill", 3, 2, codes=(), prints=(r"(?s)rank 2 .*signal 9",))],
    # All ranks read the same two sides. Large arrays, nobody looks before: the beats tell.
    "mismatch": [Case("mismatch", 4, 3, True, times=4,
                      prints=(r"said: ranks disagree on the count "
                              r".*rank 0 runs .*1000 f32.*rank 3 runs .*1001 f32",)),
                 Case("mismatch", 3, 1, False, LARGE,
                      prints=("the ranks run different operations here",))],
    # Even and odd ranks have a group each. Who waits for the culprit in its group names both; the
    # others, who are done and wait for all, hear of the culprit too, and nobody blames the rank
    # that is held up in the group.
    "groups": [Case(f"group-{fault}", 4, 3, checked, elements, survivors=phrase, of=IN_GROUP,
                    of_rank=1)
               for fault, phrase in (("stop", SILENT), ("late", LATE), ("leave", LEFT))
               for checked, elements in ((False, LARGE), (True, SMALL))],
    "ends": [Case(f"end-{way}", 3, 1, codes=(), prints=tuple(
        rf"rank {r}: .*rank 1 {said}" for r in (0, 2))) for way, said in {
            "exit0": LEFT,
            "exit1": LEFT,
            "exit_thread": LEFT,
            "exit_in_flight": "ended the run: it exits with status 0 and collectives under way",
            "exit_waiting": "ended the run: it exits with status 1 and collectives under way",
            "action": "(left the job|ended the run)",
            "finalize_live": LEFT}.items()]
    # All ranks end so, and the job succeeds.
    + [Case(f"end-{way}", 3, 1, codes=(0,)) for way in (
        "exit_all", "static", "leaked", "finalize_all", "finalize_after", "destroy_in_flight")]
    # Nothing of ours runs: the launcher names the rank.
    + [Case(f"end-{way}", 3, 1, codes=(), prints=(r"(?s)rank 1 with PID \d+.*?signal",))
       for way in ("terminate", "abort")],
}


def problems_of(case):
    start = time.monotonic()
    done = subprocess.run([MPIRUN, "-n", str(case.ranks), PROGRAM, case.fault, str(case.culprit),
                           str(TIMEOUT), "checked" if case.checked else "unchecked",
                           str(case.elements)], capture_output=True, text=True, timeout=120)
    seconds, output = time.monotonic() - start, done.stderr + done.stdout
    # "said: rank 1: all-reduce ..."
    said = {int(m[1]): m[2] for m in re.finditer(r"said: rank (\d+): (.*)", output)}
    if done.returncode not in case.codes if case.codes else done.returncode == 0:
        yield f"exit {done.returncode}, expected {case.codes or 'an error'}"
    if "VIOLATION" in output:
        yield "MPI was called by two threads, or after its end"
    for rank in set(range(case.ranks)) - {case.culprit}:
        if case.survivors and f"rank {case.culprit} {case.survivors}" not in said.get(rank, ""):
            yield f"rank {rank} does not say: rank {case.culprit} {case.survivors}"
        if case.of_rank in (-1, rank) and case.of not in said.get(rank, ""):
            yield f"rank {rank} does not name {case.of}"
    for pattern in case.prints:
        if len(re.findall(pattern, output)) < case.times:
            yield f"not printed {case.times} times: {pattern}"
    if seconds > TIMEOUT + SLACK:
        yield f"ended after {seconds:.1f} s"
    print(f"ran: {case}: {seconds:.1f} s\n{output}")


def lonely():
    """srun without PMI: each process is a job of its own, and says so instead of training on the
    others' checkpoint."""
    done = subprocess.run([PROGRAM, "none", "0", str(TIMEOUT), "unchecked", "10"],
                          capture_output=True, text=True, timeout=60,
                          env={**os.environ, "SLURM_PROCID": "1", "SLURM_NTASKS": "4"})
    said = done.stdout + done.stderr
    return [f"lonely: exit {done.returncode}, or not said: {part}\n{said}"
            for part in ("rank 1 of 4", "SLURM_NTASKS", "srun --mpi=pmix")
            if part not in said or done.returncode != 3]


failures = []
for name in sys.argv[3:] or ["lonely", *CASES]:
    failures += lonely() if name == "lonely" else [
        f"FAILED: {case}: {problem}" for case in CASES[name] for problem in problems_of(case)]
print("\n".join(failures))
sys.exit(1 if failures else 0)
