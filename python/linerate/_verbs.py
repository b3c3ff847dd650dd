"""The verbs of the command as functions. Which options of a verb are no keywords, since they only
say how and where to print:

    -o, --output       the result's save(path); report and export take the path
    --json             to_dict()
    --csv, --plot      Predictions.to_csv(), Predictions.to_plot()
    --html             save_html(path)
    --dot              Plan.to_dot()
    --all, --tasks     Advice.to_text(all=True), Comparison.to_text(tasks=True)
    --timeline, --plan of whatif      Prediction.timeline(), Prediction.plan()
    --timeline of import              import_timeline()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from . import _core
from ._call import call, with_options
from ._documents import Cluster, Plan, Prediction, Timeline, Workload
from ._results import Advice, CollectiveTimes, Comparison, Explanation, Listing, Predictions

Path: TypeAlias = "str | os.PathLike[str]"
Paths: TypeAlias = "Path | Iterable[Path]"
Quantity: TypeAlias = "str | float"  # text with a unit, or a number in SI units
Quantities: TypeAlias = "Quantity | Iterable[Quantity]"
Texts: TypeAlias = "str | Iterable[str]"
Progress: TypeAlias = "bool | Callable[[str], object] | None"


@with_options("explain")
def explain(
    files: Paths | Timeline,
    *,
    alone: Paths | None = None,
    data_idle: float | None = None,
    host_idle: float | None = None,
    exposed: float | None = None,
    progress: Progress = None,
) -> Explanation:
    """Says where a step's time goes and what limits it.

    files: the traces of all ranks of one job (paths, a folder, a pattern), or a Timeline.
    """
    return Explanation(call("explain", locals(), progress, _core.explain))


@with_options("import")
def import_workload(
    files: Paths,
    *,
    alone: Paths | None = None,
    add_cost: Path | None = None,
    step_time: Quantity | None = None,
    step_time_covers: str | None = None,
    progress: Progress = None,
) -> Workload:
    """Turns the traces of a job, or a per-gradient log, into a Workload."""
    return Workload(*call("import", locals(), progress, _core.import_files))


@with_options("import")
def import_timeline(files: Paths, *, alone: Paths | None = None,
                    progress: Progress = None) -> Timeline:
    """Turns the traces of a job into one Timeline: `import --timeline`."""
    document, _ = call("import", {**locals(), "timeline": True}, progress, _core.import_files)
    return Timeline(document)


@with_options("calibrate")
def calibrate(
    from_: Paths | None = None,
    *,
    budget: Quantity | None = None,
    largest: Quantity | None = None,
    link: Quantity | None = None,
    threads: int | None = None,
    ranks: int | Iterable[int] | None = None,
    ranks_per_node: int | None = None,
    cores: int | None = None,
    codecs: bool | Texts | None = None,
    second_order: Path | None = None,
    device: str | None = None,
    cluster: Cluster | Path | None = None,
    collective: str | None = None,
    line_rate: Quantity | None = None,
    progress: Progress = None,
) -> Cluster:
    """Fits the cost of collectives to logs, tables or traces. Returns a Cluster; its `fit` has the
    errors.

    from_: as --from. Without it the ranks of an mpirun are probed, which needs a build with MPI.
    device: only linerate-torch measures there, so it is refused here.
    """
    return Cluster(*call("calibrate", locals(), progress, _core.calibrate))


@with_options("whatif")
def whatif(
    workload: Workload | Path,
    cluster: Cluster | Path | None = None,
    *,
    network: str | None = None,
    input: str | None = None,
    classes: int | None = None,
    batch: int | None = None,
    step_time: Quantity | None = None,
    scale: float | None = None,
    device_speed: str | float | None = None,
    step_time_covers: str | None = None,
    preset: str | None = None,
    strategy: Texts | None = None,
    ranks: int | Iterable[int] | None = None,
    bandwidth: Quantities | None = None,
    latency: Quantity | None = None,
    compression_ratio: float | Iterable[float] | None = None,
    cost_model: str | None = None,
    coding: str | None = None,
    gamma: float | None = None,
    epsilon: float | None = None,
    progress: Progress = None,
) -> Predictions:
    """Predicts the step of every combination of strategies, rank counts, bandwidths and compression
    ratios.

    workload: a Workload, its file, zoo:NAME or params:SIZE.
    bandwidth: a number is in bytes per second.
    network: a network by its kind, if it was not measured (networks()).
    coding: whose costs of codecs count if the Cluster has none: "hooks", "linerate" or "papers".
    """
    return Predictions(call("whatif", locals(), progress, _core.whatif))


@with_options("all-reduce")
def whatif_collective(
    collective: str,
    cluster: Cluster | Path | None = None,
    *,
    network: str | None = None,
    ranks: int | Iterable[int] | None = None,
    size: Quantities | None = None,
    bandwidth: Quantity | None = None,
    latency: Quantity | None = None,
    progress: Progress = None,
) -> CollectiveTimes:
    """Predicts the time of one collective, with its interval: `whatif all-reduce` and the like.

    collective: all-reduce, reduce-scatter, all-gather, ...
    size: of the whole array. Every collective but a barrier needs it.
    """
    keywords = {**locals(), "size": None if collective == "barrier" else size}
    return CollectiveTimes(
        call(
            "all-reduce" if collective != "barrier" else collective,
            keywords,
            progress,
            lambda *arguments: _core.whatif_collective(collective, *arguments),
        )
    )


@with_options("plan")
def plan(
    workload: Workload | Path,
    cluster: Cluster | Path | None = None,
    *,
    network: str | None = None,
    input: str | None = None,
    classes: int | None = None,
    batch: int | None = None,
    step_time: Quantity | None = None,
    scale: float | None = None,
    device_speed: str | float | None = None,
    step_time_covers: str | None = None,
    preset: str | None = None,
    strategy: str | None = None,
    ranks: int | None = None,
    bandwidth: Quantity | None = None,
    latency: Quantity | None = None,
    compression_ratio: float | None = None,
    cost_model: str | None = None,
    coding: str | None = None,
    training: bool = False,
    progress: Progress = None,
) -> Plan:
    """Returns the tasks of a step: the Plan of a strategy."""
    planned = call("plan", locals(), progress, _core.plan)
    return Plan(planned.plan(), planned.notes(), planned)


@with_options("advise")
def advise(
    workload: Workload | Path,
    cluster: Cluster | Path | None = None,
    *,
    network: str | None = None,
    input: str | None = None,
    classes: int | None = None,
    batch: int | None = None,
    step_time: Quantity | None = None,
    scale: float | None = None,
    device_speed: str | float | None = None,
    step_time_covers: str | None = None,
    ranks: int | None = None,
    bandwidth: Quantity | None = None,
    latency: Quantity | None = None,
    current: str | None = None,
    codec: Texts | None = None,
    strategy: Texts | None = None,
    framework: str | None = None,
    memory: Quantity | None = None,
    steps_to_target: Texts | None = None,
    least_gain: float | None = None,
    progress: Progress = None,
) -> Advice:
    """Ranks strategies for a job and a network, and says whether a change pays.

    strategy: considered next to the strategies that are searched.
    framework: "pytorch" considers only what DistributedDataParallel, its communication hooks and
    its options can do, and names it in their words.
    """
    return Advice(call("advise", locals(), progress, _core.advise))


@with_options("compare")
def compare(
    predicted: Timeline | Path,
    measured: Timeline | Path,
    *,
    noise: Timeline | Path | None = None,
    warm_up: int | None = None,
    progress: Progress = None,
) -> Comparison:
    """Compares a predicted and a measured Timeline, task kind by task kind, next to the noise."""
    return Comparison(call("compare", locals(), progress, _core.compare))


@with_options("report")
def report(
    files: Any,
    output: Path,
    *,
    progress: Progress = None,
) -> None:
    """Writes one self-contained page with charts.

    files: one or a list of Timelines, Predictions, a Prediction, Advice and Explanations, or of
    files that `linerate report` reads. Raises UsageError for results that have no page: Workload,
    Cluster, Fit, Plan, CollectiveTimes, Comparison.
    """
    files = [files] if not isinstance(files, (list, tuple)) else files
    shown = [item.timeline() if isinstance(item, (Explanation, Prediction)) else item
             for item in files]
    for item in shown:
        if not isinstance(item, (str, os.PathLike, Timeline, Predictions, Advice)):
            raise _core.UsageError(
                "report: files: expected Timelines, Predictions, Advice, Explanations or files, "
                f"found a {type(item).__name__}; print it, or see its to_dict()"
            )
    _core.write_file(os.fspath(output), call("report", {"files": shown}, progress, _core.report))


@with_options("export")
def export(files: Timeline | Paths, output: Path, *, progress: Progress = None) -> None:
    """Writes a Timeline, or the traces of one job, as Perfetto (Chrome trace) JSON for
    ui.perfetto.dev."""
    call("export", locals(), progress, _core.export).save_perfetto(os.fspath(output))


def strategies() -> Listing:
    """Exchanges and the parts that may follow '+', with papers: `linerate list strategies`."""
    return Listing(_core.strategies_json())


def compressors() -> Listing:
    """Compressors; they may follow an exchange and '+': `linerate list compressors`."""
    return Listing(_core.compressors_json())


def cost_models() -> Listing:
    """Prices of an all-reduce on a network that was not measured: `linerate list cost-models`."""
    return Listing(_core.cost_models_json())


def models() -> Listing:
    """Networks for zoo:NAME: `linerate list models`."""
    return Listing(_core.models_json())


def networks() -> Listing:
    """Kinds of networks for network=, and what is known of each: `linerate list networks`."""
    return Listing(_core.networks_json())
