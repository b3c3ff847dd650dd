"""What to change in a running job: advice from its own steps and a calibration of its live
group."""
import html
import json
import statistics

import torch

from . import _core

_LEAST, _MOST = 1 << 20, 64 << 20  # bytes of the largest collective that is timed
_calibrations = {}  # (communicator, with compressors) -> Cluster, JSON


class Advice:
    """What to do, the same on every rank.

    `best`: a strategy's text, for DataParallel(..., strategy=best); while the verdict is
    "inconclusive", the fastest. `verdict`: "change", "do nothing" or "inconclusive". `confidence`:
    "checked" if the measured step lies in the interval of its prediction, "low" if it does not, and
    then nothing is advised as certain; "unchecked" for another job than this one. `text`: what to
    do in the words of the script, and what the command `linerate advise` prints.
    """

    def __init__(self, document, table, whole_table):
        self._document, self._whole_table = document, whole_table
        self.verdict, self.best, self.current = (document["verdict"], document["best"],
                                                 document["current"])
        self.confidence = document.get("confidence", "unchecked")
        self.text = self._with_script(table)

    def _with_script(self, table):
        return f"{self._in_the_script()}\n\n{table}"

    def _in_the_script(self):
        in_words = {c["strategy"]: c.get("named") for c in self._document.get("candidates", ())}
        now, best = (in_words.get(s) or f'strategy="{s}" in DataParallel(...)'
                     for s in (self.current, self.best))
        if self.verdict == "change":
            return f"Change {now} to {best}."
        if self.verdict == "do nothing" or self.best == self.current:
            return f"Leave {now}."
        return f"Leave {now}, or try {best}: what was measured does not tell which is faster."

    def to_text(self, all=False):
        """`text`; with `all` every setting tried, not the best of each exchange."""
        return self._with_script(self._whole_table) if all else self.text

    def to_dict(self):
        """The Advice, as `linerate advise --json` writes it."""
        return json.loads(json.dumps(self._document))

    def __str__(self):
        return self.text

    def __repr__(self):
        low = ", confidence low" if self.confidence == "low" else ""
        return f"<linerate.torch.Advice {self.verdict}: {self.best}{low}>"

    def _repr_html_(self):
        return f"<pre>{html.escape(self.text)}</pre>"


def calibration(world, largest_bytes, codecs, budget):
    """The Cluster (JSON) of a communicator's ranks; measured once in a program. Collective."""
    key = (world, codecs)
    if key not in _calibrations:
        largest = min(max(largest_bytes, _LEAST), _MOST)
        _calibrations[key] = _core.calibrate(world, largest, budget, torch.get_num_threads(),
                                             codecs)
    return _calibrations[key]


def workload_of(dp):
    """The run's Workload with the times of its recorded steps: medians of each rank, means over
    ranks. Collective."""
    if dp._enqueues:
        raise _core.UsageError(
            "DataParallel.advise: steps are enqueued (device_group), and the host does not know "
            "what they took. Save dp.report(), which has the device's times: `linerate import` "
            "makes a workload of it for `linerate advise`")
    workload = json.loads(dp._core.workload_json())
    mine = [statistics.median(part) for part in zip(*dp._parts)]
    every = [json.loads(text)
             for text in dp._world.gather_texts(json.dumps(mine), "advise: times of steps")]
    if not all(every):
        raise _core.UsageError(
            "DataParallel.advise: no step was recorded yet. Steps are once the plan is final, as "
            "plan_is_final says, and if record= is not 0: train about 30 more steps first")
    forward_s, backward_s, outside_s, step_s = (statistics.fmean(part) for part in zip(*every))
    # Ready times count from the first gradient, which the recorded backward pass begins before.
    lead_s = max(backward_s - workload["backward_s"], 0.0)
    for gradient in workload["gradients"]:
        gradient["ready_s"] += lead_s
    workload.update(forward_s=forward_s, backward_s=workload["backward_s"] + lead_s,
                    tail_s=outside_s, recorded={"step_s": step_s, "ranks": dp._world.size})
    return workload


def advise(dp, ranks, bandwidth, strategy, framework, steps_to_target, least_gain, codecs, budget):
    dp.settle()
    world = dp._world
    workload = workload_of(dp)
    cluster = calibration(world, 4 * sum(g["elements"] for g in workload["gradients"]), codecs,
                          budget)
    more, steps = ([texts] if isinstance(texts, str) else list(texts)
                   for texts in (strategy, steps_to_target))
    now = dp._core.strategy()
    refuted = [dp.strategy] if dp.trial and now != dp.strategy else []
    answer = {}
    if world.rank == 0:  # one rank computes it, so that no rounding can make two of it
        try:
            document, *tables = _core.advise(json.dumps(workload), cluster, now,
                                             ranks or world.size, bandwidth or "", more, steps,
                                             least_gain, framework or "", refuted)
            answer = {"document": json.loads(document), "tables": tables}
        except _core.Error as error:
            answer = {"error": str(error)}
    answer = json.loads(world.gather_texts(json.dumps(answer), "advise")[0])
    if "error" in answer:
        raise _core.UsageError(f"DataParallel.advise: {answer['error']}")
    return Advice(answer["document"], *answer["tables"])
