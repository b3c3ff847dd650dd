"""Data-parallel training with linerate under PyTorch.

    import torch, linerate.torch as lt
    lt.init()                                    # torchrun, SLURM, mpirun
    model = Net().to(lt.device())
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    dp = lt.DataParallel(model, strategy="dear")
    for x, y in loader:
        loss_fn(dp(x), y).backward()
        dp.step(opt)
    dp.settle()

docs/python-training.md says what differs from torch.nn.parallel.DistributedDataParallel.
"""
from . import _built


def _check_torch():
    import torch
    if torch.__version__ != _built.TORCH:
        raise ImportError(
            f"linerate.torch was built for torch {_built.TORCH}, and this is torch "
            f"{torch.__version__}. Type:\n"
            f"  pip install --no-build-isolation --force-reinstall --no-deps {_built.SOURCE}")


_check_torch()

from . import _scaling  # noqa: E402
from ._core import CommError, Error, InputError, KfacStep, StepReport, UsageError  # noqa: E402
from ._advice import Advice  # noqa: E402
from ._data_parallel import DataParallel, Report  # noqa: E402
from ._hooks import ddp_hook  # noqa: E402
from ._kfac import KFAC  # noqa: E402
from ._optimizers import steps_by_parameter  # noqa: E402
from ._world import device, finalize, init, rank, world_size  # noqa: E402

_scaling.watch()
__version__ = _built.VERSION
__all__ = ["Advice", "CommError", "DataParallel", "Error", "InputError", "KFAC", "KfacStep",
           "Report", "StepReport", "UsageError", "ddp_hook", "device", "finalize", "init", "rank",
           "steps_by_parameter", "world_size"]
