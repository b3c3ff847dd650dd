"""PyTorch's profiler, set up as the importer likes it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class profile:
    """Records `steps` training steps of this rank into `folder`/rank{RANK}.json.gz. Call
    linerate.explain(folder) when all ranks are done.

        with linerate.profile("traces", steps=6) as prof:
            for batch in loader:
                train(batch)
                prof.step()

    Call step() at the end of each training step. `skip` steps run before the recording. `warm_up`
    more steps run with the profiler on, because its first steps are slow. Later steps are not
    recorded. Shapes are recorded, because they say how large gradients are. The rank is that of
    torch.distributed, else RANK, else 0. Raises UsageError if the block ends before all steps ran.
    """

    def __init__(self, folder: str | os.PathLike[str], steps: int = 6, *, skip: int = 2,
                 warm_up: int = 2) -> None:
        from . import UsageError

        for name, value, least in (("steps", steps, 1), ("skip", skip, 0), ("warm_up", warm_up, 0)):
            if not isinstance(value, int) or value < least:
                raise UsageError(f"{name}: expected a whole number from {least}, found {value!r}")
        self._folder, self._steps, self._before = os.fspath(folder), steps, skip + warm_up
        self._schedule = {"wait": skip, "warmup": warm_up, "active": steps, "repeat": 1}
        self._done = 0
        self._profiler: Any = None
        self.path: str | None = None
        """of this rank's trace, once it is written"""

    def __enter__(self) -> Self:
        import torch
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as profiler
        from torch.profiler import schedule

        os.makedirs(self._folder, exist_ok=True)
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profiler(
            activities=activities,
            schedule=schedule(**self._schedule),
            record_shapes=True,
            on_trace_ready=self._save,
        )
        self._profiler.__enter__()
        return self

    def step(self) -> None:
        """The end of a training step."""
        self._done += 1
        self._profiler.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None
    ) -> None:
        self._profiler.__exit__(kind, error, where)
        if error is None and self._done < self._before + self._steps:
            from . import UsageError

            raise UsageError(
                f"profile: expected {self._before + self._steps} calls of step() ({self._before} "
                f"before the {self._steps} that are recorded), found {self._done}; call it once a "
                "training step, or ask for fewer"
            )

    def _save(self, profiler: Any) -> None:
        path = os.path.join(self._folder, f"rank{_rank()}.json.gz")
        profiler.export_chrome_trace(path)
        self.path = path


def _rank() -> int:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return int(os.environ.get("RANK", "0"))
