"""One rank of bench/python_peers.py or tools/gpu-lab peers: contenders train in turn, round after
round, and rank 0 writes what was measured.

usage: peers_rank.py JOB      a JSON text; the launcher's environment says rank, size and where the
                              ranks meet

Every contender has a model of its own, from the same weights and batch, and trains a block of steps
in turn; the ranks meet before each block. First each exact contender's weights after four steps are
compared with DDP's. One that cannot be made here, or that linerate refuses for the device, is named
with the reason, and the others go on.
"""
import json
import os
import pathlib
import re
import statistics
import sys

import recordings
import torch
import torch.distributed as dist
from clock import Clock, wait_for_device
from contenders import ALONE, DDP, SETS, NotHere, linerate
from models import batch_of, build
from torch import nn

CHECKED = 4  # steps before weights are compared
NOT_ON_DEVICE = "not supported on a device yet"
OF_A_DEVICE = re.compile(r"\bdevices?\b|\bcuda\b|\bmeta\b|\bCPU\b|data_ptr", re.IGNORECASE)


def why_left_out(error, name, device):
    """(what, reason) of a contender that cannot train: what of linerate a device is refused for,
    what is not here, else "failed"."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, NotHere):
        return "not here", reason
    if device.type != "cpu" and name.startswith("linerate ") and OF_A_DEVICE.search(reason):
        return NOT_ON_DEVICE, reason
    return "failed", f"{type(error).__name__}: {reason}"


def why_not_itself(strategy, parallel):
    """Why what `parallel` runs now is not the strategy that is to be measured; None if it is. With
    K-FAC no plan is the last."""
    if parallel.kfac is None and not parallel.plan_is_final:
        return (f"after the warm-up the plan of {strategy} is not final: more --loss-steps, or "
                "Contender.settles")
    runs = parallel.plan()["strategy"]
    exchanges = [re.match(r"[\w-]+", s)[0] for s in (strategy, runs)]
    return (None if exchanges[0] == exchanges[1]
            else f"{runs} runs in the place of {strategy}: {parallel.trial or 'planned so'}")


class Training:
    """A contender's model, wrapped, with its optimizer and batch."""

    def __init__(self, contender, job, device):
        torch.manual_seed(1)
        self.line, self.device = contender, device
        self.model = build(job["model"]).to(device)
        self.x, self.y = (t.to(device)
                          for t in batch_of(job["model"], job["batch"], dist.get_rank()))
        made = contender.wrap(self.model)
        self.parallel, self.precondition = made if isinstance(made, tuple) else (made, None)
        self.of_linerate = hasattr(self.parallel, "settle")
        self.optimizer = torch.optim.SGD(self.model.parameters(), job["lr"], momentum=0.9)
        self.loss, self.taken, self.endured = None, 0, 0
        self.blocks = {"step": [], "processor": []} | ({"second_order": []}
                                                       if contender.period > 1 else {})

    def step(self):
        self.loss = nn.functional.cross_entropy(self.parallel(self.x), self.y)
        self.loss.backward()
        if self.of_linerate:
            self.parallel.step(self.optimizer)
        else:
            if self.precondition:
                self.precondition()
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.taken += 1

    def run(self, steps):
        """Some steps; their Clock."""
        clock = Clock(self.device)
        clock.mark()
        for _ in range(steps):
            self.step()
            clock.mark()
        if self.of_linerate:
            self.parallel.settle()
        wait_for_device(self.device)
        return clock

    def block(self, steps, meet):
        """Whole periods; else `steps` after one that does not count. The step is the mean of a
        period, the median of steps that are alike."""
        dist.barrier(meet)
        period = self.line.period
        clock = self.run(period if period > 1 else steps + 1)
        seconds, processor = clock.seconds(), clock.processor_seconds()
        if period > 1:
            self.blocks["step"].append(statistics.mean(seconds))
            self.blocks["second_order"].append(seconds[0])
            self.blocks["processor"].append(statistics.mean(processor))
        else:
            self.blocks["step"].append(statistics.median(seconds[1:]))
            self.blocks["processor"].append(statistics.median(processor[1:]))


class Comparison:
    """The contenders of a job on this rank."""

    def __init__(self, job, device):
        self.job, self.device, self.meet = job, device, dist.new_group(backend="gloo")
        self.lines, self.trainings, self.left_out, self.difference, self.losses = (SETS[job["set"]],
                                                                                   {}, {}, {}, {})
        self.traces = {}

    def gathered(self, value):
        values = [None] * dist.get_world_size()
        dist.all_gather_object(values, value, group=self.meet)
        return values

    def admit(self, name):
        """Makes a contender and lets it take the steps that are checked; the ranks agree on whether
        it takes part."""
        problem = None
        try:
            training = Training(self.lines[name], self.job, self.device)
            training.run(CHECKED)
        # whatever it is: the others go on without it, and the reason is in the table
        except Exception as error:
            problem = why_left_out(error, name, self.device)
        problems = [p for p in self.gathered(problem) if p is not None]
        if problems:
            self.left_out[name] = problems[0]
            return
        self.trainings[name] = training
        if self.lines[name].exact and DDP in self.trainings:
            self.difference[name] = max(
                self.gathered(largest_difference(training.model, self.trainings[DDP].model)))

    def admit_all(self):
        torch.backends.cudnn.deterministic = True  # only here: equal sums, not speed
        for name in self.job["names"]:
            self.admit(name)
        torch.backends.cudnn.deterministic = False

    def warm_up(self):
        """Until plans are final, in whole periods; the loss after that is compared where all have
        taken as many steps (`loss_steps`). A contender that is not itself by then is left out."""
        for name, t in list(self.trainings.items()):
            steps = max(t.line.settles + CHECKED, self.job["loss_steps"])
            t.run(-(-steps // t.line.period) * t.line.period - t.taken)
            if t.line.strategy and (why := why_not_itself(t.line.strategy, t.parallel)):
                self.left_out[name] = ("failed", why)
                del self.trainings[name]
                continue
            if t.taken == self.job["loss_steps"]:
                self.losses[name] = statistics.mean(self.gathered(t.loss.item()))

    def measure(self):
        """Each round begins with another contender, so that none always comes after the same one's
        last step."""
        turns = list(self.trainings.values())
        for _ in range(self.job["rounds"]):
            for t in turns:
                t.block(self.job["steps"], self.meet)
            turns.append(turns.pop(0))
            self.write([])  # the job may come to its limit

    def endure(self):
        """`endure` steps more of linerate's exact contenders: a job that hangs is ended by its
        limit."""
        for t in self.trainings.values():
            if t.line.exact:
                t.run(self.job["endure"])
                t.endured = self.job["endure"]

    def record(self):
        """Writes what predictions need; the steps of a rank alone."""
        job, rank, folder = self.job, dist.get_rank(), pathlib.Path(self.job["record"])
        tag = job["tag"]
        plain = Training(ALONE, job, self.device)
        table = recordings.time_collectives(sum(4 * p.numel() for p in plain.model.parameters()),
                                            job["bits"], self.device, self.meet)
        if rank == 0:
            recordings.write_table(table, folder / f"table_{tag}.csv")
        if job["bits"] is not None or DDP not in self.trainings:
            return []
        recordings.trace(self.trainings[DDP].step, self.device,
                         folder / f"{job['model']}_{tag}_r{rank}.json.gz")
        return recordings.alone(plain.step, self.device, max(4, job["steps"]))

    def trace(self):
        """Some steps of those that `trace` names, K-FAC's first the one with inverses; what rank
        0's trace says of each."""
        for name in (name for name in self.job["trace"] if name in self.trainings):
            t = self.trainings[name]
            t.run((-t.taken - recordings.UNTRACED) % t.line.period)
            slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
            path = (pathlib.Path(self.job["record"])
                    / f"{self.job['model']}_{self.job['tag']}_{slug}_r{dist.get_rank()}.json.gz")
            recordings.trace(t.step, self.device, path, steps=3)
            self.traces[name] = recordings.words_of(path)

    def write(self, alone):
        """On rank 0, to the file that the job names."""
        rows = {name: {"blocks": t.blocks, "loss": self.losses.get(name),
                       "difference": self.difference.get(name), "endured": t.endured, **running(t)}
                for name, t in self.trainings.items()}
        result = {"rows": rows, "left_out": self.left_out, "alone": alone, "traces": self.traces,
                  "versions": versions(), "device": name_of(self.device)}
        if dist.get_rank() == 0:
            part = pathlib.Path(self.job["result"] + ".part")
            part.write_text(json.dumps(result))
            part.replace(self.job["result"])  # a whole one at any time


def running(training):
    """What a contender of linerate's runs, and what a trial has found of it."""
    if not training.of_linerate:
        return {"plan": None, "trial": None}
    return {"plan": training.parallel.plan()["strategy"], "trial": training.parallel.trial}


def largest_difference(model, other):
    """Of weights, relative to each tensor's largest; 0 only if all bits are the same."""
    worst = 0.0
    for a, b in zip(model.parameters(), other.parameters()):
        if not torch.equal(a, b):
            worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item(), 1e-12)
    return worst


def versions():
    found = {"python": sys.version.split()[0], "torch": torch.__version__,
             "cuda": torch.version.cuda, "nccl": ".".join(map(str, torch.cuda.nccl.version()))
             if torch.cuda.is_available() else None}
    try:
        found["linerate"] = linerate().__version__
    except NotHere:
        found["linerate"] = None
    return found


def name_of(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name()
    models = (re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
              if os.path.exists("/proc/cpuinfo") else [])
    return models[0] if models else "CPU"


def device_of(job):
    """This rank's: on a machine with fewer GPUs than ranks they share."""
    if job["device"] != "cuda":
        return torch.device(job["device"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def join_ranks(job):
    if job.get("environment"):
        os.environ.update(job["environment"])
    try:
        lt = linerate()
    except NotHere:
        dist.init_process_group("cpu:gloo,cuda:nccl" if job["device"] == "cuda" else "gloo")
        return
    lt.init(timeout=120)
    if job["set"] == "cpus":
        lt.init("mpi")


def main():
    job = json.loads(sys.argv[1])
    # before CUDA begins: weights are compared bit for bit
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if job.get("kaisa"):
        sys.path.append(job["kaisa"])
    device = device_of(job)
    if device.type == "cpu":
        torch.set_num_threads(1)
    join_ranks(job)
    comparison = Comparison(job, device)
    comparison.admit_all()
    comparison.warm_up()
    comparison.measure()
    alone = []
    if job.get("record"):
        alone = comparison.record()
        comparison.write(alone)
        comparison.trace()
        comparison.write(alone)
    if job["endure"]:
        comparison.endure()
        comparison.write(alone)
    dist.barrier(comparison.meet)


if __name__ == "__main__":
    main()
