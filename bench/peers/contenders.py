"""Who is compared in bench/python_peers.py and tools/gpu-lab: how each wraps a model, and whose
time its own is divided by.

PyTorch is imported when a model is wrapped, for those who only print what ranks have measured.
"""
import dataclasses
import importlib.util
import sys
import types
from collections.abc import Callable

DDP, FP16, BF16, POWERSGD = ("DDP", "DDP fp16_compress_hook", "DDP bf16_compress_hook",
                             "DDP powerSGD_hook")
KAISA, KAISA_TRIANGLES = "KAISA fraction 1", "KAISA fraction 1 symmetry_aware"
UNSHAPED, SHAPED = "unshaped", "10Gbit/s"  # the rates that a bound on a GPU is stated for


@dataclasses.dataclass(frozen=True)
class Against:
    """A ratio: this contender's time over that of another."""
    of: str
    at_most: float | dict | None = None  # a bound; by rate if it is not one for all
    part: str = "step"  # or "second_order": the step of a period that makes factors and inverses

    def bound(self, rate):
        return self.at_most.get(rate) if isinstance(self.at_most, dict) else self.at_most


@dataclasses.dataclass(frozen=True)
class Contender:
    # model -> what its forward pass goes through, or that and what is called after a backward pass
    wrap: Callable
    against: tuple = ()
    exact: bool = False  # its weights have to be DDP's
    # steps after which kinds of steps come again: times are means over whole periods
    period: int = 1
    settles: int = 1  # steps until the plan is final, after four
    # of linerate: the one that has to run when it is measured; None: whatever its users get
    strategy: str | None = None


class NotHere(Exception):
    """A contender that needs what this machine lacks."""


def _ddp(model, **options):
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(model, **options)


def ddp(**options):
    return lambda model: _ddp(model, **options)


def hooked(name, **options):
    """DDP with a hook of the wheel's."""
    def wrap(model):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        hook, parallel = getattr(default_hooks, name), _ddp(model, **options)

        def by_another_name(state, bucket):
            return hook(state, bucket)

        refused_by_name = name == "bf16_compress_hook"  # where there is no GPU
        parallel.register_comm_hook(None, by_another_name if refused_by_name else hook)
        return parallel
    return wrap


def powersgd(**options):
    """DDP with the wheel's powerSGD_hook, rank 4. Over gloo with one bucket: with two, the later
    rounds came in different orders on the ranks (ddp_worker.py)."""
    def wrap(model):
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (PowerSGDState,
                                                                               powerSGD_hook)
        on_cpu = next(model.parameters()).device.type == "cpu"
        parallel = _ddp(model, **(options | ONE_BUCKET if on_cpu else options))
        parallel.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=4,
                                                  start_powerSGD_iter=2), powerSGD_hook)
        return parallel
    return wrap


ONE_BUCKET = {"bucket_cap_mb": 1 << 14}


def linerate():
    try:
        import linerate.torch
    except ImportError as error:
        raise NotHere(f"linerate.torch cannot be imported: {error}") from None
    return linerate.torch


def over_group(strategy, **options):
    """linerate's wrapper over PyTorch's process group."""
    def wrap(model):
        import torch.distributed as dist
        return linerate().DataParallel(model, strategy=strategy, process_group=dist.group.WORLD,
                                       **options)
    return wrap


def over_mpi(strategy):
    return lambda model: linerate().DataParallel(model, strategy=strategy)


def hook_of_ours(strategy, **options):
    """DDP with a hook of linerate's, and the options of the DDP that it is measured by."""
    def wrap(model):
        parallel = _ddp(model, **options)
        parallel.register_comm_hook(*linerate().ddp_hook(strategy))
        return parallel
    return wrap


def find_kfac_pytorch():
    """Makes the package `kfac` of a folder on sys.path without its __init__, which asks for the
    version of an installed package."""
    if "kfac" in sys.modules:
        return
    spec = importlib.util.find_spec("kfac")
    if spec is None:
        raise NotHere(
            "kfac-pytorch was not found: --kaisa says where the folder is that holds kfac/")
    sys.modules["kfac"] = types.ModuleType("kfac")
    sys.modules["kfac"].__path__ = list(spec.submodule_search_locations)


def kaisa(symmetry_aware):
    """K-FAC of gpauloski/kfac-pytorch, every factor and inverse on every period's first step; its
    folder is on sys.path (--kaisa)."""
    def wrap(model):
        find_kfac_pytorch()
        from kfac.enums import ComputeMethod
        from kfac.preconditioner import KFACPreconditioner
        parallel = _ddp(model, **CAPPED)
        preconditioner = KFACPreconditioner(
            parallel, factor_update_steps=PERIOD, inv_update_steps=PERIOD,
            compute_method=ComputeMethod.INVERSE, grad_worker_fraction=1.0,
            symmetry_aware=symmetry_aware, damping=0.03)
        return parallel, preconditioner.step
    return wrap


ALONE = Contender(lambda model: model)  # exchanges nothing

# Two ranks on CPUs, over gloo and MPI: bench/python_peers.py.
ON_CPUS = {
    DDP: Contender(ddp()),
    "ddp": Contender(over_group("ddp"), (Against(DDP, 1.0),), exact=True),
    "optimal": Contender(over_group("optimal"), (Against(DDP, 1.02),), exact=True, settles=26),
    "dear": Contender(over_group("dear"), (Against(DDP, 1.02),), exact=True, settles=26),
    "auto": Contender(over_group("auto"), (Against(DDP),), exact=True, settles=12),
    "ddp over MPI": Contender(over_mpi("ddp"), (Against(DDP),), exact=True),
    "dear over MPI": Contender(over_mpi("dear"), (Against(DDP),), exact=True, settles=26),
    FP16: Contender(hooked("fp16_compress_hook"), (Against(DDP),)),
    "ddp(wire=fp16)": Contender(over_group("ddp(wire=fp16)"), (Against(FP16, 1.0),)),
    "ddp_hook bulk(wire=fp16)": Contender(hook_of_ours("bulk(wire=fp16)"), (Against(FP16, 1.0),)),
    BF16: Contender(hooked("bf16_compress_hook"), (Against(DDP),)),
    "ddp(wire=bf16)": Contender(over_group("ddp(wire=bf16)"), (Against(BF16, 1.0),)),
    POWERSGD: Contender(powersgd(), (Against(DDP),)),
    "ddp+powersgd(rank=4)": Contender(over_group("ddp+powersgd(rank=4)"),
                                      (Against(POWERSGD, 1.0),)),
    "ddp_hook powersgd(rank=4)": Contender(hook_of_ours("powersgd(rank=4)", **ONE_BUCKET),
                                           (Against(POWERSGD, 1.0),)),
}

# On GPUs, over NCCL: tools/gpu-lab. DDP as ../shared/gpu has it; bounds are those of ResNet-50,
# batch 32, 2 ranks on one H100.
CAPPED = {"bucket_cap_mb": 25, "gradient_as_bucket_view": True}
PERIOD = 10


def on_gpu(strategy, *against, **more):
    """The strategy itself: without a trial, after which "ddp" might run under its name."""
    return {f"linerate {strategy}": Contender(over_group(strategy, most_above_ddp=float("inf")),
                                              against, settles=4, strategy=strategy, **more)}


ON_GPUS = {
    DDP: Contender(ddp(**CAPPED)),
    FP16: Contender(hooked("fp16_compress_hook", **CAPPED), (Against(DDP),)),
    POWERSGD: Contender(powersgd(**CAPPED), (Against(DDP),)),
    **on_gpu("ddp", Against(DDP, {UNSHAPED: 1.02, SHAPED: 1.02}), exact=True),
    **on_gpu("bulk", Against(DDP), exact=True),
    **on_gpu("optimal", Against(DDP), exact=True),
    **on_gpu("dear", Against(DDP, {SHAPED: 0.85}), exact=True),
    **on_gpu("ddp+fp16", Against(FP16, {SHAPED: 0.75}), Against(DDP)),
    **on_gpu("ddp+powersgd(rank=4)", Against(POWERSGD, {SHAPED: 0.8}), Against(DDP)),
    KAISA: Contender(kaisa(False), period=PERIOD),
    KAISA_TRIANGLES: Contender(kaisa(True), (Against(KAISA), Against(KAISA, part="second_order")),
                               period=PERIOD),
    **on_gpu(f"ddp+kfac(spd, factors={PERIOD}, inverses={PERIOD}, largest=16384, damping=0.03)",
             Against(KAISA, {SHAPED: 0.65}), Against(KAISA, {SHAPED: 0.6}, "second_order"),
             Against(KAISA_TRIANGLES, {SHAPED: 1.0}),
             Against(KAISA_TRIANGLES, {SHAPED: 1.0}, "second_order"), period=PERIOD),
}
SETS = {"cpus": ON_CPUS, "gpus": ON_GPUS}
