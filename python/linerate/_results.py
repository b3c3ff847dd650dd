"""What verbs answer that is no document of its own, and the documents that only a verb makes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

from . import _core
from ._documents import Prediction, Record, Result, Timeline, _frame

if TYPE_CHECKING:
    import pandas

    from typing_extensions import Self


class Explanation(Result):
    """Where the time of a job's steps goes. Times are seconds, and shares are of the step (0 to 1).
    None stands for what the traces do not hold.
    """

    __slots__ = ()
    _short = {
        "gains": "why.gain_share_of_step",
        "gain_ceilings": "why.gain_ceiling_share_of_step",
        "reason": "why.reason",
        "leans": "why.leans",
    }
    _calls = (("to_json",), ("to_text",), ("to_html",), ("timeline",))
    _has_page = True

    verdict: str
    """network-bound, skew-bound, compute-bound, host-bound, input-bound or inconclusive"""
    confidence: float | None
    reason: str
    leans: bool
    """whether the verdict is only leaned to"""
    scaling_factor: float | None
    """T_1 / T_n"""
    step_s: float | None
    """T_n, the median step"""
    one_rank_step_s: float | None
    """T_1"""
    causes: tuple[Record, ...]
    """of waits and idle devices, by what they cost: kind, rank, per_step_s, steps_with_it, steps,
    where, gains"""
    gains: Record
    """by remedy: the share of the step that it gains"""
    gain_ceilings: Record
    """by remedy: the share that it gains at most"""
    steps: tuple[Record, ...]
    ranks: tuple[Record, ...]
    collectives: tuple[Record, ...]
    """one a collective over its ranks: name, bytes, ranks, step, duration_s, exposed_s, transfer_s,
    skew_s, last_rank, ..."""
    notes: tuple[str, ...]

    def timeline(self) -> Timeline:
        """Of the traces, as `import --timeline` writes it."""
        return Timeline(self._held.timeline())

    def __repr__(self) -> str:
        return (f"<linerate.Explanation {self.verdict}: {len(self.steps)} steps, {len(self.ranks)} "
                "ranks>")

    def to_pandas(self) -> pandas.DataFrame:
        """A row a collective, as in `collectives`."""
        return _frame(self.to_dict()["collectives"])


class Answer(Result):
    """A result that a file keeps and a page shows."""

    __slots__ = ()
    _core_class: ClassVar[Any]
    _has_page = True

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what save(), or the verb with --json, wrote."""
        with open(path, encoding="utf-8") as file:
            return cls(cls._core_class.from_json(file.read(), os.fspath(path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes what the verb prints with --json."""
        _core.write_file(os.fspath(path), self._json())

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page with charts, as the verb's --html does."""
        _core.write_file(os.fspath(path), self._held.to_html())


class Predictions(Answer, Sequence[Prediction]):
    """The predicted steps of one job: a Prediction for each combination. They are ordered by
    strategy, then by ranks, by bandwidth and by compression ratio. What load() reads has no Plans
    and no Timelines of its own; a pickle has.
    """

    __slots__ = ("_all",)
    _core_class = _core.Predictions

    workload: str
    gradients: int
    gradient_bytes: int
    one_rank_step_s: float | None
    """T_1"""
    preset: str
    predictions: tuple[Record, ...]
    notes: tuple[str, ...]
    """what was extrapolated, assumed or not known"""

    def __init__(self, held: Any) -> None:
        super().__init__(held)
        object.__setattr__(self, "_all", None)

    def to_csv(self) -> str:
        """As `whatif --csv`: units in the column names, what is unknown empty."""
        return self._held.to_csv()

    def to_plot(self) -> str:
        """Scaling factor over bandwidth in characters, as `whatif --plot`."""
        return self._held.to_plot("C.UTF-8")

    def to_pandas(self) -> pandas.DataFrame:
        """A row a combination, with interval_s as low_s and high_s."""
        rows = []
        for row in self.to_dict()["predictions"]:
            interval = row.pop("interval_s") or (None, None)
            rows.append({**row, "low_s": interval[0], "high_s": interval[1]})
        return _frame(rows)

    def _list(self) -> tuple[Prediction, ...]:
        if self._all is None:
            rows = self.to_dict()["predictions"]
            object.__setattr__(self, "_all",
                               tuple(Prediction(row, self._held, i) for i, row in enumerate(rows)))
        return self._all

    def __len__(self) -> int:
        return len(self._list())

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Prediction, ...]: ...
    def __getitem__(self, index: int | slice) -> Prediction | tuple[Prediction, ...]:
        return self._list()[index]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self._list())

    def __repr__(self) -> str:
        return f"<linerate.Predictions of {self.workload}: {len(self)} combinations>"


class CollectiveTimes(Result):
    """The time of one collective over several rank counts and sizes."""

    __slots__ = ()
    _calls = (("to_json",), ("to_text",))

    predictions: tuple[Record, ...]
    """ranks, size_bytes, time_s, interval_s (90 %; None if nothing was measured), extrapolated"""

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._keys().get("notes", ()))

    def to_pandas(self) -> pandas.DataFrame:
        """A row a rank count and size."""
        return _frame(self.to_dict()["predictions"])


class Advice(Answer):
    """Candidate strategies for one job on one cluster, ranked, and what would change the answer."""

    __slots__ = ()
    _core_class = _core.Advice

    workload: str
    cluster: str
    ranks: int
    current: str
    """the strategy in use"""
    verdict: str
    """do nothing, change or inconclusive"""
    best: str
    """what to use, a strategy's text; while inconclusive, the fastest"""
    sentence: str
    measured_step_s: float | None
    """T_n of the job with the strategy in use, if it was measured"""
    confidence: str
    """unchecked: no step was measured. checked: it lies in the interval of its prediction. low: it
    does not, and nothing is advised as certain"""
    present: str
    """measured and predicted step of the strategy in use, in words; empty: not measured"""
    framework: str
    """whose strategies are candidates: pytorch; empty: linerate's"""
    beyond: str
    """with a framework: what linerate's other strategies would gain"""
    candidates: tuple[Record, ...]
    """best first: strategy, named (with a framework), standing, step_s {value, low, high},
    over_current, memory_bytes, reason, ..."""
    ceilings: tuple[Record, ...]
    """remedy, step_s, step_low_s, step_high_s (no such remedy gives a shorter one than the low end,
    or without it step_s), reason"""
    turning_points: tuple[Record, ...]
    """where the answer changes: quantity, low, high, below, above"""
    stragglers: tuple[Record, ...]
    notes: tuple[str, ...]

    def to_text(self, all: bool = False) -> str:
        """What the command prints. With `all` it lists every setting that was tried, not only the
        best of each exchange.
        """
        return _core.in_python(self._held.to_text(all))

    def _text(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        low = ", confidence low" if self.confidence == "low" else ""
        return f"<linerate.Advice {self.verdict}: {self.best}{low}>"

    def to_pandas(self) -> pandas.DataFrame:
        """A row a candidate, best first, with the values of its intervals."""

        def value(cell: Any) -> Any:
            return cell["value"] if isinstance(cell, dict) else cell

        return _frame([{key: value(cell) for key, cell in row.items()}
                       for row in self._keys().to_dict()["candidates"]])


class Comparison(Result):
    """The errors of a prediction, quantity by quantity. Times are seconds. A relative error is
    predicted / measured - 1.
    """

    __slots__ = ()
    _calls = (("to_json",), ("to_text", False), ("to_text", True))

    step: Record
    """predicted_s, measured_s, relative_error, noise"""
    kinds: tuple[Record, ...]
    """sums over a step by task kind, in rows like step"""
    tasks: tuple[Record, ...]
    notes: tuple[str, ...]

    def to_text(self, tasks: bool = False) -> str:
        """What the command prints; with `tasks` every task that has a partner."""
        return _core.in_python(self._held.to_text(tasks))

    def _text(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        error = self.step.relative_error
        return ("<linerate.Comparison>"
                if error is None else f"<linerate.Comparison: step {100 * error:+.1f} %>")

    def to_pandas(self) -> pandas.DataFrame:
        """A row a quantity: the step, exposed communication, task kinds."""
        values = self.to_dict()
        return _frame([values["step"], *(row for key, row in values.items()
                                         if key.startswith("exposed")), *values["kinds"]])


class Listing(Sequence[Record]):
    """Registered things in the order of `linerate list`: name, line (one sentence), source (paper),
    and more."""

    __slots__ = ("_rows", "_values")

    def __init__(self, text: str) -> None:
        import json

        self._values: dict[str, Any] = json.loads(text)
        (rows,) = self._values.values()
        self._rows = tuple(Record(row) for row in rows)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(row["name"] for row in self._rows)

    def to_dict(self) -> dict[str, Any]:
        """What `linerate list ... --json` prints."""
        from copy import deepcopy

        return deepcopy(self._values)

    @overload
    def __getitem__(self, index: int | str) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, index: int | str | slice) -> Record | tuple[Record, ...]:
        """By position or by name."""
        if isinstance(index, str):
            for row in self._rows:
                if row["name"] == index:
                    return row
            raise KeyError(index)
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        width = max(len(name) for name in self.names)
        return "\n".join(f"{row['name']:<{width}}  {row['line']} ({row['source']})"
                         for row in self._rows)

    def __repr__(self) -> str:
        return f"<linerate.Listing of {len(self)}: {', '.join(self.names)}>"

    def _repr_html_(self) -> str:
        from ._text import table_html

        return table_html(("name", "", "source"),
                          [(row["name"], row["line"], row["source"]) for row in self._rows])

    def to_pandas(self) -> pandas.DataFrame:
        """A row an entry."""
        return _frame([row.to_dict() for row in self._rows])


