"""Documents: what the command reads and writes as files, as objects that never change."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from . import _core

if TYPE_CHECKING:
    import pandas

    from typing_extensions import Self


class Record(Mapping[str, Any]):
    """An object of a document: a mapping whose keys are attributes, too. Lists in it are tuples;
    texts name keywords and methods of Python where the document names options of the command."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", {key: _frozen(value) for key, value in values.items()})

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(_unknown(type(self).__name__, name, self._values)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} never changes: {name} cannot be set")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"

    def _repr_html_(self) -> str:
        """For notebooks: a table of keys and values."""
        from ._text import table_html

        return table_html((), [(key, _cell(value)) for key, value in self._values.items()])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.to_dict(),)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: dicts and lists of one's own."""
        return {key: _thawed(value) for key, value in self._values.items()}


def _cell(value: Any) -> str:
    """A value in a line: of lists how long they are, of numbers four digits, of what is unknown a
    dash."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return (f"{len(value)} entries" if any(isinstance(item, (Record, tuple)) for item in value)
                else ", ".join(map(_cell, value)))
    return str(value)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return Record(value)
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, str):
        return _core.in_python(value)
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_thawed(item) for item in value]
    return value


def _unknown(kind: str, name: str, known: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"{kind} has no {name}; " + (f"did you mean {near[0]}?"
                                        if near else f"it has {', '.join(known)}")


class Answers:
    """In place of what a verb answered, in the process that unpickles it: what its methods returned
    when it was pickled."""

    def __init__(self, answer: Any, calls: tuple[tuple[Any, ...], ...]) -> None:
        self._of: dict[tuple[Any, ...], Any] = (
            answer._of if isinstance(answer, Answers)
            else {call: getattr(answer, call[0])(*call[1:]) for call in calls}
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self._of[(name, *arguments)]


class Result:
    """What a verb answers. Its attributes are the keys of its JSON; printing it shows what the
    command prints, in the words of Python. It can be copied and pickled, and equals what has the
    same JSON."""

    __slots__ = ("_held", "_record")
    # attribute: path of its key, where that is not the attribute's name
    _short: ClassVar[dict[str, str]] = {}
    # that a pickle answers; none: the extension pickles it
    _calls: ClassVar[tuple[tuple[Any, ...], ...]] = ()
    _has_page: ClassVar[bool] = False  # to_html()

    def __init__(self, held: Any) -> None:
        object.__setattr__(self, "_held", held)
        object.__setattr__(self, "_record", None)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (Answers(self._held, self._calls) if self._calls else self._held,)

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Result) and type(other) is type(self)
                and self._json() == other._json())

    def __hash__(self) -> int:
        return hash(self._json())

    def _json(self) -> str:
        return self._held.to_json()

    def _text(self) -> str:
        return self._held.to_text()

    def _html(self) -> str | None:
        return self._held.to_html() if self._has_page else None

    def to_dict(self) -> dict[str, Any]:
        """What the command prints with --json, or writes into the document's file, as dicts and
        lists of one's own."""
        import json

        return json.loads(self._json())

    def _keys(self) -> Record:
        if self._record is None:
            object.__setattr__(self, "_record", Record(self.to_dict()))
        return self._record

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        keys = self._keys()
        if name in self._short:
            value: Any = keys
            for key in self._short[name].split("."):
                value = value[key]
            return value
        try:
            return keys[name]
        except KeyError:
            raise AttributeError(_unknown(type(self).__name__, name,
                                          {**self._short, **keys})) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} never changes: {name} cannot be set")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._short, *self._keys()]

    def __str__(self) -> str:
        return _core.in_python(self._text()).rstrip("\n")

    def __repr__(self) -> str:
        return f"<linerate.{type(self).__name__}>"

    def _repr_html_(self) -> str:
        """For notebooks: the charts of the report, else the text."""
        from html import escape

        page = self._html()
        if page is None:
            return f"<pre>{escape(str(self))}</pre>"
        fit = ("this.style.height = this.contentWindow.document.documentElement.scrollHeight + 24 "
               "+ 'px'")
        return (
            f'<iframe srcdoc="{escape(page)}" onload="{fit}" '
            'style="width: 100%; height: 640px; border: 0; background: white"></iframe>'
        )


class Document(Result):
    """A result that is a file's content, too."""

    __slots__ = ("_notes",)
    _core_class: ClassVar[Any]

    def __init__(self, held: Any, notes: list[str] | tuple[str, ...] = ()) -> None:
        super().__init__(held)
        object.__setattr__(self, "_notes", tuple(notes))

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to know about how it was made; of a loaded document what its file says."""
        return tuple(map(_core.in_python, self._notes))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a file. Raises InputError naming file, place, expected and found; also for a
        document of a newer linerate."""
        return cls(cls._core_class.load(os.fspath(path)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The document that to_dict() made, or that you write. Raises InputError naming the JSON
        path of what is wrong."""
        import json

        return cls(cls._core_class.from_json(json.dumps(values), f"a {cls.__name__}"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that the command writes. A reader sees the old one or the new one, never
        a part."""
        self._held.save(os.fspath(path))

    def _text(self) -> str:
        return self._json()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._held, self._notes)


class Workload(Document):
    """What one rank computes in a training step, and which gradients it sends. Times are seconds of
    one rank computing alone, medians over steps. None stands for what is unknown. Notes say what
    import found missing or assumed.
    """

    __slots__ = ()
    _core_class = _core.Workload

    name: str
    """the model's, or the trace's"""
    source: str
    """its origin, for people"""
    layers: tuple[Record, ...]
    """in forward order: name, kind, forward_s, backward_s, flops (forward, per sample)"""
    gradients: tuple[Record, ...]
    """in the order in which backward makes them ready: name, elements, dtype, layer, registration,
    ready_s, rows, turn (of models that a step trains one after the other)"""
    backward_s: float
    forward_s: float | None
    update_s: float | None
    step_s: float | None
    """one-device step (T_1); between step_low_s and step_high_s"""

    @property
    def other_collectives(self) -> tuple[Record, ...]:
        """What the job sends besides gradients, as SyncBatchNorm and ZeRO do: collective, bytes,
        per_rank, group (ranks; 0: all), place (forward, backward, update), at_s (seconds), every
        (steps). to_dict() has the key only if there is any."""
        return self._keys().get("other_collectives", ())

    def __repr__(self) -> str:
        return f"<linerate.Workload {self.name}: {len(self.gradients)} gradients>"

    def _text(self) -> str:
        from ._text import table

        rows = [(g.name, g.elements, g.dtype, f"{g.ready_s * 1e3:.3f}") for g in self.gradients]
        return f"{self.name}: backward {self.backward_s * 1e3:.3f} ms\n" + table(
            ("gradient", "elements", "type", "ready ms"), rows
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A row a gradient, in ready order: name, elements, dtype, layer, registration, ready_s."""
        return _frame(self.to_dict()["gradients"])


class Cluster(Document):
    """Ranks, links and the fitted cost of everything that is not the user's own computation. Notes
    say what calibrate refused or assumed in a log.
    """

    __slots__ = ()
    _core_class = _core.Cluster

    name: str
    ranks: int
    network: Record
    """bandwidth_bytes_per_s per direction, latency_s per message step, line_rate_bytes_per_s"""
    collectives: tuple[Record, ...]
    """a fit for each collective, rank count and element type that was measured: collective, ranks,
    dtype, segments, ..."""

    @property
    def fit(self) -> Fit:
        """How well the fit predicts what it did not see; to_dict() is what `calibrate --json`
        prints."""
        return Fit(self)

    def _text(self) -> str:
        return self._held.to_text()

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return (f"<linerate.Cluster{name}: {self.ranks} ranks, {len(self.collectives)} collectives "
                "measured>")


class Fit(Result):
    """A calibration: errors of the fit, switches between algorithms, what probes found, notes."""

    __slots__ = ("_notes",)

    collectives: tuple[Record, ...]
    notes: tuple[str, ...]

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster._held)
        object.__setattr__(self, "_notes", list(cluster._notes))

    def _json(self) -> str:
        return self._held.summary_json(self._notes)

    def to_pandas(self) -> pandas.DataFrame:
        """A row a table of collectives: collective, ranks, errors (relative)."""
        return _frame(self.to_dict()["collectives"])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (Cluster(self._held, self._notes),)


class Timeline(Document):
    """What happened, or is predicted to happen: tasks with rank, resource, start, end and bytes.
    Times are nanoseconds since origin_ns. Notes say what the import found missing.
    """

    __slots__ = ()
    _core_class = _core.Timeline
    _has_page = True

    mode: str
    """predicted, rehearsed, trained or imported"""
    strategy: str
    ranks: int

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._keys().get("notes", ()))

    def _text(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        keys = self._keys()
        return (f"<linerate.Timeline {keys['mode']}, {keys['strategy'] or 'strategy unknown'}: "
                f"{keys['ranks']} ranks>")

    def to_pandas(self) -> pandas.DataFrame:
        """A row an event: rank, step, kind, resource, name, start_s and end_s since the Timeline's
        origin, bytes."""
        return _timeline_frame(self.to_dict())


class Plan(Document):
    """The task graph of a step. It depends only on Workload, Cluster and strategy. Notes say where
    it departs from its strategy.
    """

    __slots__ = ("_planned",)
    _core_class = _core.Plan

    strategy: str
    workload: str
    ranks: int
    variants: tuple[Record, ...]
    """step graphs: tasks, edges, payloads; the schedule names which step runs which"""

    def __init__(self, held: Any, notes: list[str] | tuple[str, ...] = (),
                 planned: Any = None) -> None:
        super().__init__(held, notes)
        object.__setattr__(self, "_planned", planned)

    def _text(self) -> str:
        return self._planned.to_text() if self._planned is not None else self._json()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._held, self._notes,
                            self._planned and Answers(self._planned, (("to_text",),)))

    def to_dot(self) -> str:
        """A graph for GraphViz, as `plan --dot` prints it."""
        return self._held.to_dot()

    def __repr__(self) -> str:
        return f"<linerate.Plan {self.strategy} of {self.workload}: {self.ranks} ranks>"


class Prediction(Record):
    """One combination of a what-if. None stands for what is unknown or undefined there."""

    __slots__ = ("_held", "_index")

    strategy: str
    ranks: int
    bandwidth_bit_per_s: float | None
    """of the network, per direction"""
    compression_ratio: float
    step_s: float | None
    interval_s: tuple[float, float] | None
    """the step's 90 % interval; None: the error of its costs is not known"""
    scaling_factor: float | None
    """T_1 / T_n"""
    communication_s: float | None
    exposed_communication_s: float | None

    def __init__(self, values: Mapping[str, Any], held: Any = None, index: int = 0) -> None:
        super().__init__(values)
        object.__setattr__(self, "_held", held)
        object.__setattr__(self, "_index", index)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.to_dict(), self._held, self._index)

    def timeline(self) -> Timeline:
        """The predicted Timeline of this combination, as `whatif --timeline` saves it."""
        return Timeline(self._held.timeline(self._index))

    def plan(self) -> Plan:
        """Its Plan, as `whatif --plan` saves it."""
        planned = self._held.plan(self._index)
        return Plan(planned.plan(), planned.notes(), planned)


def _frame(rows: list[Any]) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(rows)


def _timeline_frame(timeline: dict[str, Any]) -> pandas.DataFrame:
    frame = _frame([dict(zip(timeline["event_columns"], event)) for event in timeline["events"]])
    if frame.empty:
        return frame
    names = timeline["names"]
    frame["name"] = [names[i] if i >= 0 else None for i in frame["name"]]
    for column in ("ready", "start", "end"):
        times = frame.pop(f"{column}_ns")
        frame[f"{column}_s"] = times.where(times >= 0) * 1e-9 if column == "ready" else times * 1e-9
    frame["bytes"] = frame["bytes"].where(frame["bytes"] >= 0)
    return frame
