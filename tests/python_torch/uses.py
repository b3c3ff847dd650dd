#!/usr/bin/env python3
"""What users do to models, each against torch.nn.parallel.DistributedDataParallel: run on every
rank of a torchrun job.

usage: torchrun --nproc-per-node N uses.py [NAME ...]

uses_of_models.py, uses_of_loops.py and uses_of_scalers.py have more. Weights must be DDP's bit for
bit on 2 ranks, where a sum has one order, and within 1e-6 on more. Prints "use NAME: ok" on each
rank, or the error; test_uses.py reads that.
"""
import contextlib
import copy
import json
import os
import pathlib
import pickle
import re
import sys
import tempfile
import time
import traceback
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import linerate.torch as lt

HERE = pathlib.Path(__file__).parent
STRATEGIES = ("ddp", "bulk", "optimal", "dear")
KEEPS = float("inf")  # as most_above_ddp: the strategy itself is tested, not ddp in its place
USES = {}
OPEN = []  # what parallel() has wrapped


def use(function):
    USES[function.__name__] = function
    return function


# ---- what is trained ----

class Net(nn.Module):
    """Convolutions, norms with buffers, linear layers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.hidden = nn.Linear(6 * 6 * 6, 24)
        self.out = nn.Linear(24, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.out(torch.relu(self.hidden(x.flatten(1))))


class Mlp(nn.Sequential):
    def __init__(self, *more):
        super().__init__(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 24), nn.Tanh(),
                         nn.Linear(24, 5), *more)


def images(step, rank=None):
    g = torch.Generator().manual_seed(1000 * step + (dist.get_rank() if rank is None else rank))
    return torch.randn(8, 1, 8, 8, generator=g), torch.randint(5, (8,), generator=g)


def rows(step, rank=None, count=8):
    g = torch.Generator().manual_seed(1000 * step + (dist.get_rank() if rank is None else rank))
    return torch.randn(count, 10, generator=g), torch.randint(5, (count,), generator=g)


def build(make):
    torch.manual_seed(7)
    return make()


def build_double(make):
    return build(make).double()


def build_for_sums_of_any_order(make):
    """For what makes a last bit large (Adam divides by a gradient's size, a wide layer has many
    addends): on ranks whose sums have several orders, in f64."""
    return (build if dist.get_world_size() <= 2 else build_double)(make)


def batch_for(model, step, rank=None):
    """Of the model's kind and type."""
    x, y = (images if isinstance(model, Net) else rows)(step, rank)
    return x.to(next(p.dtype for p in model.parameters() if p.is_floating_point())), y


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


loss_of = nn.functional.cross_entropy


# ---- DDP and linerate in the same words ----

class TorchDDP:
    """DDP with the names of lt.DataParallel."""

    def __init__(self, module, name="", **options):
        self.module, self.options = module, options
        self.dp = DDP(module, **options)

    def __call__(self, *x):
        return self.dp(*x)

    def step(self, opt, scaler=None):
        if scaler is None:
            opt.step()
        else:
            scaler.step(opt)
            scaler.update()
        opt.zero_grad()

    def finish(self):
        pass

    def settle(self):
        pass

    def close(self):
        del self.dp

    def __getattr__(self, name):  # state_dict, no_sync, train, eval
        return getattr(self.__dict__["dp"], name)


def wrappers(strategies=STRATEGIES):
    """(strategy, wrap): linerate's, each with the options of a use."""
    for strategy in strategies:
        yield strategy, lambda module, strategy=strategy, **o: lt.DataParallel(
            module, **{"strategy": strategy, "most_above_ddp": KEEPS, **o})


def sgd_alone(parameters):
    """Without momentum."""
    return torch.optim.SGD(parameters, 0.05)


def parallel(strategy, of=Mlp, make=build, opt_of=sgd, kind=lt.DataParallel, **options):
    """(model, wrapper, optimizer): a model of this class under linerate. It is closed at the end of
    the use."""
    model = make(of)
    OPEN.append(kind(model, **{"strategy": strategy, "most_above_ddp": KEEPS, **options}))
    return model, OPEN[-1], opt_of(model.parameters())


def require_equal(name, got, want, exact=None):
    exact = dist.get_world_size() <= 2 if exact is None else exact
    for (key, a), (_, b) in zip(got, want, strict=True):
        if exact:
            assert a.dtype == b.dtype and torch.equal(a, b), (
                f"{name}: {key} differs by {(a - b).abs().max().item():.3g}")
        else:
            limit = max(1e-6, 4 * torch.finfo(a.dtype).eps) if a.dtype == torch.bfloat16 else 1e-6
            assert torch.allclose(a.double(), b.double(), rtol=limit, atol=limit), (
                f"{name}: {key} differs by {(a - b).abs().max().item():.3g}")


def named(model):
    return [(n, p.detach().clone()) for n, p in model.named_parameters()]


def buffers_of(model):
    return [(n, b.double().clone()) for n, b in model.named_buffers()]


def backward(dp, step, scaler=None, factor=1):
    """This rank's backward pass of a step, its loss times the factor."""
    x, y = batch_for(getattr(dp, "module", dp), step)
    loss = loss_of(dp(x), y) * factor
    (loss if scaler is None else scaler.scale(loss)).backward()


@contextlib.contextmanager
def wrapped(wrap, of=Mlp, make=build, opt_of=sgd, **options):
    """(model, wrapper, optimizer), settled and closed at the end."""
    model = make(of)
    dp = wrap(model, **options)
    yield model, dp, opt_of([p for p in model.parameters() if p.requires_grad])
    dp.settle()
    dp.close()


def take_step(dp, opt, step):
    backward(dp, step)
    dp.step(opt)


def loop(dp, opt, steps=6, first=0):
    for step in range(first, first + steps):
        take_step(dp, opt, step)
    dp.settle()


def trained(wrap, step_of=take_step, of=Mlp, steps=6, opt_of=sgd, make=build, end=None, **options):
    """What `steps` steps make of a model of this class: its parameters, and what step_of(dp, opt,
    step) and, after the last step, end(dp) return. `options`: the wrapper's."""
    seen = []
    with wrapped(wrap, of, make, opt_of, **options) as (model, dp, opt):
        for step in range(steps):
            seen += step_of(dp, opt, step) or []
        dp.settle()
        seen += (end(dp) if end else None) or []
    return [*named(model), *seen]


def trained_by_ddp(of=Mlp, steps=4, **how):
    return trained(TorchDDP, of=of, steps=steps, **how)


def same_as(want, train, strategies=STRATEGIES, exact=None):
    """train(wrap) -> module, or a list of (name, tensor): what is wanted, with each strategy."""
    for name, wrap in wrappers(strategies):
        result = train(wrap)
        require_equal(name, named(result) if isinstance(result, nn.Module) else result, want, exact)


def same_as_ddp(train, strategies=STRATEGIES, ddp=None, exact=None):
    """The same with DDP, of these options, and with each strategy."""
    result = train(lambda module, **o: TorchDDP(module, **{**(ddp or {}), **o}))
    same_as(named(result) if isinstance(result, nn.Module) else result, train, strategies, exact)


def same_steps_as(want, step_of=take_step, strategies=STRATEGIES, exact=None, **how):
    same_as(want, lambda wrap: trained(wrap, step_of, **how), strategies, exact)


def same_steps_as_ddp(step_of=take_step, strategies=STRATEGIES, ddp=None, exact=None, **how):
    same_as_ddp(lambda wrap: trained(wrap, step_of, **how), strategies, ddp, exact)


def use_of_steps(**how):
    """A use of the function of a step."""
    def made(step_of):
        USES[step_of.__name__] = lambda: same_steps_as_ddp(step_of, **how)
    return made


def made_anew(dp):
    """After a change of the model: DDP has to be made anew; linerate notices."""
    if isinstance(dp, TorchDDP):
        dp.close()
        dp.dp = DDP(dp.module, **dp.options)


def joined(batches):
    """Several ranks' batches as one."""
    return [torch.cat(parts) for parts in zip(*batches)]


def said_while(run):
    """The warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in said]


# ---- uses ----

def refused(attempt, *says, kind=lt.UsageError):
    """attempt() throws `kind`, whose message has each of these."""
    try:
        attempt()
    except kind as e:
        assert all(one in str(e) for one in says), (says, e)
        return
    raise AssertionError(f"no error: {says}")


@use
def plain():
    same_steps_as_ddp(of=Net)


@use
def state_dict_has_ddps_keys():
    ddp = TorchDDP(build(Net)).state_dict()
    _, dp, opt = parallel("dear", Net)
    take_step(dp, opt, 0)
    state = dp.state_dict()
    assert list(state) == list(ddp), (list(state), list(ddp))
    assert not dp._core.updates_pending()


@use
def buffers_are_rank_0s():
    def end(dp):
        dp.eval()
        dp(images(0)[0])
        # Between steps DDP's other ranks hold what their own last batch made of rank 0's.
        return buffers_of(dp.module) if dist.get_rank() == 0 else []
    same_steps_as_ddp(of=Net, end=end)


@use
def buffers_are_kept():
    """Each rank's own after the start, as DDP's broadcast_buffers=False."""
    def train(wrap):
        kept = {"broadcast_buffers": False} if wrap.__defaults__ is None else {"buffers": "keep"}
        return trained(wrap, of=Net, end=lambda dp: buffers_of(dp.module), **kept)
    same_as_ddp(train)


@use
def ddp_options_in_the_strategy():
    """DDP's options and hooks are options of the strategy: buckets change no bit, 16 bits are the
    hooks' of DDP, all agree."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    same_steps_as_ddp(of=Net, ddp={"bucket_cap_mb": 25},
                      strategies=("ddp(bucket_cap_mb=25)", "ddp(first=1KiB,bucket=2KiB)"))

    def hooked(module):
        other = TorchDDP(module)
        other.dp.register_comm_hook(None, fp16_compress_hook)
        return other
    near_hook = trained(hooked, of=Net)
    for strategy, near in (("ddp(wire=bf16)", near_hook), ("ddp(wire=fp16)", near_hook),
                           ("ddp+qsgd(bits=8, dense_below=0)", []),
                           ("ddp+maxmin(bits=8, dense_below=0)", [])):
        model, dp, opt = parallel(strategy, Net)
        loop(dp, opt)
        dp.require_same_weights(strategy)
        assert dp.plan()["strategy"].startswith("ddp"), dp.plan()["strategy"]
        for (name, a), (_, b) in zip(model.named_parameters(), near):
            assert torch.allclose(a, b, atol=2e-2), (
                f"{strategy}: {name} differs by {(a - b).abs().max().item():.3g}")


@use
def parameters_to_ignore():
    """As DDP: what is named on the module is not exchanged, and is each rank's own."""
    def make(of):
        model = build(of)
        DDP._set_params_and_buffers_to_ignore_for_model(model, ["0.weight"])
        return model
    same_steps_as_ddp(make=make)


@use
def distributed_sampler():
    """The usual sampler, with lt's rank and number of ranks: every sample on one rank."""
    data = torch.utils.data.TensorDataset(torch.arange(24))
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=lt.world_size(),
                                                  rank=lt.rank())
    mine = torch.zeros(24, dtype=torch.long)
    for (items,) in torch.utils.data.DataLoader(data, 4, sampler=sampler):
        mine[items] += 1
    dist.all_reduce(mine)
    assert bool((mine == 1).all()), mine


@use
def checked_ranks_compare_collectives():
    """What differs is an error on every rank that names both, before anything is exchanged."""
    group = dist.new_group()
    lt.init(timeout=60, checked=True)
    try:
        world = linerate_world(group)
        world.sum([1], "all alike")
        refused(lambda: world.sum([1] * (1 + lt.rank()), "lengths"), "lengths", "rank 0", "rank 1",
                kind=lt.CommError)
    finally:
        lt.init(timeout=60)


@use
def a_link_slows_down_what_is_sent():
    """And is a rate above 0 with a unit, or bytes per second."""
    lt.init(timeout=60, link="100Mbit/s")
    try:
        world = linerate_world(dist.new_group())
        before, start = world.traffic()[0], time.perf_counter()
        world.sum([1] * 200_000, "slow")
        took, sent = time.perf_counter() - start, world.traffic()[0] - before
        assert sent > 1_000_000 and took >= sent / 12.5e6 - 0.5e-3, (took, sent)
        for wrong in ("1Gbit", "0Gbit/s", 0, -1.25e8):
            refused(lambda rate=wrong: lt.init(timeout=60, link=rate), "init: link=: expected")
    finally:
        lt.init(timeout=60)


def linerate_world(group):
    from linerate.torch import _world
    return _world.world_of(group)


@use
def user_hooks_before_and_after_wrapping():
    # DDP sends a gradient before a hook that is registered after wrapping has seen it, or after:
    # its own order. So one rank is the measure: each rank halves its gradient, and the mean of
    # halves is the half of the mean.
    def train(wrap, before):
        calls = []

        def wrap_and_register(model):
            if before:
                _halve(model, calls)
            dp = wrap(model)
            if not before:
                _halve(model, calls)
            return dp
        result = trained(wrap_and_register)
        assert len(calls) == 6 * 6, len(calls)
        return result
    for before in (True, False):
        same_as(_halved(), lambda wrap: train(wrap, before))


def _halve(model, calls):
    """By hooks of the parameters, from here on."""
    def halve(p):
        calls.append(1)
        p.grad.mul_(0.5)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(halve)


def _halved():
    def step_of(dp, opt, step):
        backward(dp, step)
        for p in dp.module.parameters():
            p.grad.mul_(0.5)
        dp.step(opt)
    return trained(TorchDDP, step_of)


@use
def user_hook_registered_between_forward_and_backward():
    def step_of(dp, opt, step):
        x, y = rows(step)
        out = dp(x)
        if step == 0:
            _halve(dp.module, [])
        loss_of(out, y).backward()
        dp.step(opt)
    same_steps_as(_halved(), step_of, strategies=("ddp",))


@use
def retyped_and_loaded():
    """Three steps, the change, three more."""
    other = build(Mlp)
    for p in other.parameters():
        nn.init.constant_(p, 0.01)

    for change in (Mlp.double, Mlp.bfloat16,
                   lambda model: model.load_state_dict(other.state_dict())):
        def step_of(dp, opt, step, change=change):
            if step == 3:
                dp.settle()
                change(dp.module)
                made_anew(dp)
            take_step(dp, opt, step)
        same_steps_as_ddp(step_of, opt_of=sgd_alone)


@use_of_steps()
def weight_surgery_in_place(dp, opt, step):
    take_step(dp, opt, step)
    model = dp.module
    with torch.no_grad():
        model[0].weight.clamp_(-0.2, 0.2)
        model[2].weight.data.mul_(0.9)
        model[4].bias[0] = 0.5


@use
def compiled_before_or_after_wrapping():
    def train(wrap, before):
        torch._dynamo.reset()
        model = build(Mlp)
        dp = wrap(torch.compile(model, backend="aot_eager") if before else model)
        run = dp if before else torch.compile(dp.dp if isinstance(dp, TorchDDP) else dp,
                                              backend="aot_eager")
        opt = sgd(model.parameters())
        for step in range(6):
            backward(run, step)
            dp.step(opt)
            with torch.no_grad():
                run(rows(step)[0])
        dp.settle()
        dp.close()
        return model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for before in (True, False):
            same_as_ddp(lambda wrap: train(wrap, before))


@use
def compiled_code_loses_overlap_and_says_so():
    torch._dynamo.reset()
    _, dp, opt = parallel("dear", make=lambda of: torch.compile(build(of), backend="aot_eager"))
    said = said_while(lambda: loop(dp, opt))
    assert sum("compiled code reads weights unseen" in one for one in said) == 1, said


@use
def graphs_read_weights_unseen():
    """A replay calls no operator, as here a view of the weights' memory. Without a GPU a replay
    fails, after it has settled. A step under capture is refused, and the next one is as if it had
    not been asked for."""
    from linerate.torch import _graphs
    def replay():
        try:
            torch.cuda.CUDAGraph.replay(None)
        except (AttributeError, TypeError):
            pass

    weights = []

    def make(of):
        model = build(of)
        weights[:] = [p.detach().numpy() for p in model.parameters()]
        return model

    def step_of(dp, opt, step):
        backward(dp, step)
        if step == 2 and isinstance(dp, lt.DataParallel):
            _graphs._askers.append(lambda: True)  # as a device would say under capture
            for act in (lambda: dp.step(opt), dp.finish, dp.skip_step, lambda: dp.set_batch(1)):
                refused(act, "step 2", "under capture", "settle()")
            _graphs._askers.pop()
        dp.step(opt)
        replay()
        return [(f"step {step}", torch.tensor(w)) for w in weights]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_steps_as_ddp(step_of, make=make)


@use_of_steps(of=Net)
def evaluation_between_steps(dp, opt, step):
    take_step(dp, opt, step)
    dp.eval()
    with torch.no_grad() if step % 2 else torch.inference_mode():
        seen = dp(images(step)[0]).clone()
    dp.train()
    return [(f"step {step}", seen)]


@use_of_steps(steps=4)
def weights_read_through_numpy_and_state_dict(dp, opt, step):
    take_step(dp, opt, step)
    model = dp.module
    return [(f"numpy {step}", torch.from_numpy(model[2].weight.detach().numpy().copy())),
            (f"norm {step}", model[4].weight.norm().detach()),
            *((n, v.clone()) for n, v in dp.state_dict().items())]


@use
def activation_checkpointing():
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Mlp):
        def forward(self, x):
            x = self[1](self[0](x))
            x = checkpoint(lambda t: self[3](self[2](t)), x, use_reentrant=self.reentrant)
            return self[4](x)
    for Checkpointed.reentrant in (False, True):
        same_steps_as_ddp(of=Checkpointed)


@use_of_steps(of=Net)
def bf16_autocast(dp, opt, step):
    x, y = images(step)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(dp(x), y)
    loss.backward()
    dp.step(opt)


@use
def grad_scaler_hears_of_a_compressors_skip():
    _, dp, opt = parallel("ddp+topk(density=0.1, dense_below=0)")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(4):
        overflows = step == 2 and dist.get_rank() == 1
        backward(dp, step, scaler, float("inf") if overflows else 1)
        report = dp.step(opt, scaler=scaler)
        assert report.infinite == (step == 2)
    assert scaler.get_scale() == 512.0
    dp.require_same_weights()


@use_of_steps(of=Net, make=lambda of: build(of).to(memory_format=torch.channels_last))
def channels_last(dp, opt, step):
    x, y = images(step)
    loss_of(dp(x.to(memory_format=torch.channels_last)), y).backward()
    dp.step(opt)


@use_of_steps(steps=5)
def accumulation(dp, opt, step):
    with dp.no_sync():
        for micro in (0, 1):
            backward(dp, 10 * step + micro)
    take_step(dp, opt, 10 * step + 2)


@use_of_steps()
def clipping(dp, opt, step):
    backward(dp, step)
    dp.finish()
    if step % 2:
        nn.utils.clip_grad_norm_(dp.module.parameters(), 0.1)
    else:
        nn.utils.clip_grad_value_(dp.module.parameters(), 0.01)
    opt.step()
    opt.zero_grad()


class Branches(nn.Module):
    """Ranks use different branches; one nobody does."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 24)
        self.branches = nn.ModuleList(nn.Linear(24, 5) for _ in range(3))
        self.frozen = nn.Linear(10, 24).requires_grad_(False)
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        return self.branches[(self.turn + dist.get_rank()) % 2](
            torch.relu(self.first(x) + self.frozen(x)))


@use
def unused_and_frozen_parameters():
    def end(dp):
        assert dp.module.branches[2].weight.grad is None
    same_steps_as_ddp(of=Branches, end=end, ddp={"find_unused_parameters": True})


@use
def parameters_shared_by_layers():
    class Tied(Mlp):
        def __init__(self):
            super().__init__()
            self.again = nn.Linear(24, 24)
            self.again.weight = self[2].weight

        def forward(self, x):
            x = self[3](self[2](self[1](self[0](x))))
            return self[4](torch.tanh(self.again(x)))
    same_steps_as_ddp(of=Tied)


@use
def parameter_groups_and_schedulers():
    def train(wrap):
        with wrapped(wrap, make=build_for_sums_of_any_order) as (model, dp, _):
            opt = torch.optim.AdamW([{"params": model[0].parameters(), "lr": 1e-2},
                                     {"params": model[2].parameters(), "weight_decay": 0.1},
                                     {"params": [model[4].weight]},
                                     {"params": [model[4].bias], "lr": 1e-4}], 1e-3)
            schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.02, total_steps=20)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # "lr_scheduler.step() before optimizer.step()"
                for step in range(8):
                    take_step(dp, opt, step)
                    schedule.step()
        return model
    same_as_ddp(train)


OPTIMIZERS = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True}, "Adam": {"lr": 1e-2, "amsgrad": True},
    "AdamW": {"lr": 1e-2}, "Adagrad": {"lr": 1e-2}, "Adadelta": {}, "Adamax": {}, "NAdam": {},
    "RAdam": {}, "RMSprop": {"lr": 1e-3, "momentum": 0.5}, "Rprop": {}, "ASGD": {}, "Adafactor": {},
    "Muon": {"lr": 1e-2}, "LBFGS": None, "SparseAdam": None,
}


@use
def every_optimizer():
    found = ({n for n in torch.optim.__all__ if n[0].isupper() and n != "Optimizer"}
             if hasattr(torch.optim, "__all__") else set())
    assert not found - set(OPTIMIZERS), f"not tested: {found - set(OPTIMIZERS)}"
    for name, options in OPTIMIZERS.items():
        if options is None or not hasattr(torch.optim, name):
            continue

        def train(wrap, name=name, options=options):
            def opt_of(parameters):  # Muon's are matrices
                return getattr(torch.optim, name)(
                    [p for p in parameters if name != "Muon" or p.ndim == 2], **options)
            with wrapped(wrap, make=build_for_sums_of_any_order,
                         opt_of=opt_of) as (model, dp, opt):
                for step in range(5):
                    take_step(dp, opt, step)
                    model.zero_grad()
            moments = [(f"{name} {k}", v) for s in opt.state.values() for k, v in sorted(s.items())
                       if isinstance(v, torch.Tensor)]
            return [(f"{name} {n}", p) for n, p in named(model)] + moments
        same_as_ddp(train, strategies=("ddp", "dear"))


@use
def lbfgs_with_a_closure():
    def train(wrap):
        x, y = rows(0)

        def closure():
            opt.zero_grad()
            loss = loss_of(dp(x), y)
            loss.backward()
            # LBFGS decides by the loss: every rank needs the same one.
            total = loss.detach().clone()
            dist.all_reduce(total)
            return total / dist.get_world_size()
        with wrapped(wrap, opt_of=lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3)) as (
                model, dp, opt):
            for _ in range(2):
                opt.step(closure) if isinstance(dp, TorchDDP) else dp.step(opt, closure=closure)
        return model
    same_as_ddp(train, strategies=("ddp", "dear"))


@use
def two_models_one_group():
    """A GAN: the generator learns through the discriminator."""
    def train(wrap):
        gen, dis = (build(lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 10))),
                    build(lambda: nn.Linear(10, 1)))
        g, d = wrap(gen, name="g"), wrap(dis, name="d")
        og, od = sgd(gen.parameters()), torch.optim.Adam(dis.parameters(), 1e-2)
        for step in range(5):
            noise = torch.randn(
                8, 4, generator=torch.Generator().manual_seed(step * 31 + dist.get_rank()))
            real = rows(step)[0]
            (d(g(noise).detach()).mean() - d(real).mean()).backward()
            d.step(od)
            for p in dis.parameters():
                p.requires_grad_(False)
            (-dis(g(noise)).mean()).backward()
            g.step(og)
            for p in dis.parameters():
                p.requires_grad_(True)
        for one in (g, d):
            one.settle()
            one.close()
        return list(gen.named_parameters()) + list(dis.named_parameters())
    same_as_ddp(train, ddp={"broadcast_buffers": False})


@use
def two_models_two_overlapping_groups():
    """{0, 1} and {1, 2} of 3 ranks: rank 1 is in both. Two ranks a group, so bit for bit."""
    if dist.get_world_size() < 3:
        return
    members = [(0, 1), (1, 2)]
    groups = [dist.new_group(list(m)) for m in members]
    mine = [i for i, m in enumerate(members) if dist.get_rank() in m]

    def train(wrap):
        models = [build(lambda i=i: Mlp(*[nn.Tanh()] * i)) for i in mine]
        dps = [wrap(model, process_group=groups[i]) for model, i in zip(models, mine)]
        opts = [sgd(model.parameters()) for model in models]
        for step in range(5):
            for dp, opt in zip(dps, opts):
                take_step(dp, opt, step)
        for dp, i in zip(dps, mine):
            dp.settle()
            if isinstance(dp, lt.DataParallel):
                assert dp._world.size == 2 and dp._world.rank == members[i].index(dist.get_rank())
                dp.require_same_weights()
                text = dp.report().to_json()
                assert bool(text) == (dist.get_rank() == members[i][0]), len(text)
            dp.close()
        return [t for model in models for t in model.named_parameters()]
    same_as_ddp(train, exact=True)


@use
def a_group_of_some_ranks():
    """Ranks outside of it go on without it, and all end well: the first rank, and all but the
    first."""
    for members in ([0], list(range(1, dist.get_world_size()))):
        group = dist.new_group(members)
        if dist.get_rank() in members:
            same_steps_as_ddp(of=Net, process_group=group, exact=True)
        else:
            refused(lambda: lt.DataParallel(build(Mlp), process_group=group),
                    f"rank {dist.get_rank()} is not in this group")


@use
def fork_started_data_loaders():
    data = torch.utils.data.TensorDataset(*rows(0, count=24))

    def train(wrap):
        with wrapped(wrap) as (model, dp, opt):
            for _ in range(2):
                loader = torch.utils.data.DataLoader(data, 8, num_workers=1,
                                                     multiprocessing_context="fork")
                for x, y in loader:
                    loss_of(dp(x), y).backward()
                    dp.step(opt)
        return model
    same_as_ddp(train, strategies=("ddp", "dear"))


@use
def set_batch_weighs_by_samples():
    """Against one rank with the joined batch: 1e-6."""
    rank, size = dist.get_rank(), dist.get_world_size()
    counts = [3 + 5 * r for r in range(size)]
    (model, dp, opt), whole = parallel("ddp"), build(Mlp)
    opt_whole = sgd(whole.parameters())
    for step in range(5):
        x, y = rows(step, count=counts[rank])
        dp.set_batch(len(x))
        loss_of(dp(x), y).backward()
        dp.step(opt)
        x, y = joined(rows(step, r, counts[r]) for r in range(size))
        loss_of(whole(x), y).backward()
        opt_whole.step()
        opt_whole.zero_grad()
    require_equal("ddp", named(model), named(whole), exact=False)


class Stderr:
    """What this process writes to stderr, C++'s lines too."""

    def __enter__(self):
        sys.stderr.flush()
        self._file, self._saved = tempfile.TemporaryFile(), os.dup(2)
        os.dup2(self._file.fileno(), 2)
        return self

    def __exit__(self, *error):
        sys.stderr.flush()
        os.dup2(self._saved, 2)
        os.close(self._saved)
        self._file.seek(0)
        self.text = self._file.read().decode()


@use
def join_is_quiet_and_a_missing_backward_pass_is_not():
    _, dp, opt = parallel("ddp")
    with Stderr() as said, dp.join():
        for step in range(2 + 2 * dist.get_rank()):
            take_step(dp, opt, step)
    assert not said.text, said.text
    with Stderr() as said:
        dp.finish()
    assert "without a backward pass" in said.text, said.text


@use
def uneven_inputs_join():
    """Divided by all ranks, or by those that have inputs left."""
    def train(wrap, by_initial):
        with wrapped(wrap) as (model, dp, opt):
            scope = dp.dp.join if isinstance(dp, TorchDDP) else dp.join
            with scope(divide_by_initial_world_size=by_initial):
                for step in range(3 + 2 * dist.get_rank()):
                    take_step(dp, opt, step)
        return model
    for by_initial in (True, False):
        same_as_ddp(lambda wrap: train(wrap, by_initial), strategies=("ddp", "bulk", "dear"),
                    exact=None if by_initial else False)


@use
def exchange_state_goes_on_bit_for_bit():
    for strategy in ("ddp+topk(density=0.05, dense_below=0)", "ddp+powersgd(rank=2, dense_below=0)",
                     "ddp+onebit(dense_below=0)"):
        whole, dp, opt = parallel(strategy)
        loop(dp, opt, 8)
        _, dp, opt = parallel(strategy)
        loop(dp, opt, 4)
        state, weights, moments = dp.exchange_state(), dp.state_dict(), opt.state_dict()
        again, dp, opt = parallel(strategy)
        dp.load_state_dict(weights)
        opt.load_state_dict(moments)
        dp.load_exchange_state(state)
        loop(dp, opt, 4, first=4)
        require_equal(strategy, named(again), named(whole), exact=True)


@use
def ddp_hook():
    """Exact strategies give DDP's own bits; compressed ones train, and ranks agree."""
    for strategy in ("bulk", "bulk(wire=bf16)", "powersgd(rank=2, dense_below=0)",
                     "topk(density=0.1, dense_below=0)"):
        model, plain = build(Net), build(Net)
        hooked, ddp = DDP(model), DDP(plain)
        hooked.register_comm_hook(*lt.ddp_hook(strategy))
        losses = []
        for step in range(6):
            x, y = images(0)
            for one, net in ((hooked, model), (ddp, plain)):
                opt = sgd_alone(net.parameters())
                loss = loss_of(one(x), y)
                loss.backward()
                opt.step()
                opt.zero_grad()
                if one is hooked:
                    losses.append(loss.item())
            # nothing is owed to buckets that DDP is about to make anew
            if step == 0 and "wire" not in strategy:
                require_equal(strategy, named(model), named(plain))
        assert losses[-1] < losses[0], (strategy, losses)
        if strategy == "bulk":
            require_equal(strategy, named(model), named(plain))
        total = torch.cat([p.detach().flatten() for p in model.parameters()])
        lowest, highest = total.clone(), total.clone()
        dist.all_reduce(lowest, dist.ReduceOp.MIN)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        assert torch.equal(lowest, highest), strategy
        hooked = ddp = None


class Conv1D(nn.Module):
    """transformers.pytorch_utils.Conv1D: found by its name, since transformers need not be here."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = (nn.Parameter(torch.randn(nx, nf) * 0.2),
                                  nn.Parameter(torch.zeros(nf)))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1],
                                                                                self.nf)


class Attention(nn.Module):
    """Every kind of layer that K-FAC looks at, and some that it does not."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.pool = nn.Conv1d(8, 8, 2, padding=1)
        self.cube = nn.Conv3d(1, 2, (2, 2, 1), padding=(1, 0, 0))
        self.expand = Conv1D(12, 8)
        self.rare = nn.Bilinear(12, 12, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, tokens):
        x = self.words(tokens)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        x = x + self.conv(x.unsqueeze(1)).mean(1)
        x = x + self.cube(x.view(len(x), 1, 2, 3, 8)).mean((1, 2, 3)).unsqueeze(1)
        x = self.pool(x.transpose(1, 2)).transpose(1, 2).contiguous()
        x = torch.tanh(self.expand(x)).mean(1)
        return self.out(self.rare(x, x))


def tokens_of(step, rank, count=8):
    g = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(20, (count, 6), generator=g), torch.randint(5, (count,), generator=g)


@use
def kfac_finds_pythons_layers():
    pre = lt.KFAC(build(Attention), "kfac(norms=on, embeddings=on, factors=1, inverses=1)")
    taken = {name for name, *_, reason in pre.layers() if not reason}
    left = {name: reason for name, *_, reason in pre.layers() if reason}
    assert taken == {"words", "attention.in_proj", "attention.out_proj", "norm", "conv", "pool",
                     "cube", "expand", "out"}, pre.layers()
    kinds = {name: kind for name, kind, *_ in pre.layers()}
    assert (kinds["pool"], kinds["cube"], kinds["expand"]) == ("conv1d", "conv3d", "linear"), kinds
    assert list(left) == ["rare"] and "no factors are known" in left["rare"], left


@use
def kfac_on_ranks_is_kfac_on_the_joined_batch():
    size, rank = dist.get_world_size(), dist.get_rank()
    text = "kfac(spd, damping=0.01, factors=1, inverses=2, norms=on, embeddings=on, kl=0)"
    # Each factor in a message of its own: forward comes to "cube" before "pool", which is
    # registered before it.
    alone = text.replace("spd", "spd, fusion=none")
    for strategy in (f"ddp+{text}", f"dear+{text}", f"ddp+{alone}", f"dear+{alone}"):
        model, dp, opt = parallel(strategy, Attention, build_double, sgd_alone)
        whole = build_double(Attention)
        pre, opt_whole = lt.KFAC(whole, text.replace("spd, ", "")), sgd_alone(whole.parameters())
        for step in range(5):
            x, y = tokens_of(step, rank)
            loss_of(dp(x), y).backward()
            dp.step(opt)
            x, y = joined(tokens_of(step, r) for r in range(size))
            opt_whole.zero_grad()
            loss_of(whole(x), y).backward()
            pre.step(opt_whole)
        dp.settle()
        require_equal(strategy, named(model), named(whole), exact=False)
        dp.load_exchange_state(dp.exchange_state())


def kfac_of(model, text, ranks, **options):
    """K-FAC over ranks or alone, and what computes the output there."""
    if not ranks:
        return lt.KFAC(model, f"kfac({text})", **options), model
    _, dp, _ = parallel(f"kfac(spd, {text})", make=lambda _: model, **options)
    return dp, dp


@use
def kfac_with_a_grad_scaler():
    """The same weights as without one, with the clip and through an overflow, alone and over
    ranks."""
    text = "damping=0.01, factors=1, inverses=2"

    def run(scaled, ranks):
        model = build_double(Mlp)
        opt = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2) if scaled else None
        one, forward = kfac_of(model, text, ranks, scaler=scaler)
        scales = []
        for step in range(8):
            overflows = step == 3
            if overflows and not scaled:
                continue
            x, y = rows(step, None if ranks else 0)
            loss = loss_of(forward(x.double()), y) * (float("inf") if overflows else 1)
            (scaler.scale(loss) if scaled else loss).backward()
            one.step(opt, scaler=scaler) if scaled else one.step(opt)
            opt.zero_grad()
            scales.append(scaler.get_scale() if scaled else 1)
        assert not scaled or scales[:5] == [64, 128, 128, 64, 64], scales
        return list(model.named_parameters())

    for ranks in (False, True):
        require_equal(f"scaled, ranks {ranks}", run(True, ranks), run(False, ranks), exact=False)
    _, dp, opt = parallel(f"ddp+kfac(spd, {text})")
    backward(dp, 0)
    refused(lambda: dp.step(opt, scaler=torch.amp.GradScaler("cpu")), "give the constructor")
    dp.skip_step()


@use
def kfac_accumulates():
    """loss / n over n backward passes takes the steps of the joined batch, however it is said,
    under no_sync or not, over ranks and alone. Other numbers of passes are warned of, once."""
    text, n = "damping=0.01, factors=2, inverses=4", 4

    def run(passes, ranks=True, said=None, in_text=None, syncs=True):
        model = build_double(Mlp)
        opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        one, forward = kfac_of(model, text + (f", accumulate={in_text}" if in_text else ""), ranks,
                               accumulate=said)
        with Stderr() as stderr:
            for step in range(8):
                x, y = rows(step, None if ranks else 0, count=24)
                for k, (a, b) in enumerate(zip(x.double().chunk(passes), y.chunk(passes))):
                    with (one.no_sync()
                          if ranks and not syncs and k + 1 < passes else contextlib.nullcontext()):
                        (loss_of(forward(a), b) / passes).backward()
                one.step(opt)
                opt.zero_grad()
        return (list(model.named_parameters()),
                [line for line in stderr.text.splitlines() if "backward passes" in line])

    for ranks in (False, True):
        joined, said = run(1, ranks)
        assert not said, said
        for options in ({"said": n}, {"in_text": n}, {"said": n, "in_text": n, "syncs": False}):
            found, said = run(n, ranks, **options)
            for (name, p), (_, q) in zip(found, joined):
                assert (p - q).abs().max() < 1e-12, (ranks, options, name, (p - q).abs().max())
            assert not said, said
        for options, numbers in (({}, ("4 backward passes", "expected 1", "accumulate=4")),
                                 ({"said": 3}, ("4 backward passes", "accumulate=3"))):
            _, said = run(n, ranks, **options)
            assert len(said) == 1 and all(part in said[0] for part in numbers), said
    for accumulate in (0, -1, 2.5, "8"):
        refused(lambda: lt.KFAC(build(Mlp), accumulate=accumulate), "accumulate=")
    refused(lambda: lt.KFAC(build(Mlp), "kfac(accumulate=8)", accumulate=4),
            "say it in one of them")
    refused(lambda: lt.KFAC(build(Mlp), "kfac(accumulate=0)"), "1 to 10000")
    refused(lambda: lt.KFAC(build(Mlp), "kfac(lm=on)"), "no Levenberg-Marquardt", "say damping=")
    for made in (lt.KFAC, lt.DataParallel):
        refused(lambda: made(build(Mlp), levenberg_marquardt={"start": 5}), made.__name__,
                "kfac(damping=0.03)", kind=TypeError)


def kfac_by_hand(weights, steps, rate, damping):
    """The steps of a two-layer tagger in f64, written anew (docs/kfac.md, Conventions): every
    factor and inverse in every step, no clip.
    `steps`: inputs [rows, features] and classes of all rows that count, over all ranks."""
    w = [torch.cat([weights[i].detach(), weights[i + 1].detach()[:, None]], 1) for i in (0, 2)]
    averages, updates = [], 0
    for x, y in steps:
        if not len(y):
            continue  # no gradient, nothing for the averages
        ones = torch.ones(len(y), 1, dtype=x.dtype)
        inputs = [torch.cat([x, ones], 1)]
        hidden = torch.tanh(inputs[0] @ w[0].T)
        inputs.append(torch.cat([hidden, ones], 1))
        outer = torch.softmax(inputs[1] @ w[1].T, 1) - nn.functional.one_hot(y, len(w[1]))
        gradients = [(outer @ w[1][:, :-1]) * (1 - hidden ** 2), outer]
        new = [(a.T @ a / len(y), g.T @ g / len(y)) for a, g in zip(inputs, gradients)]
        updates += 1
        rho = min(1 - 1 / updates, 0.95)
        averages = [tuple(rho * o + (1 - rho) * n for o, n in zip(old, now))
                    for old, now in zip(averages, new)] if averages else new
        for i, (a, g) in enumerate(averages):
            pi, gamma = ((a.trace() / len(a)) / (g.trace() / len(g))) ** 0.5, damping ** 0.5
            whole = gradients[i].T @ inputs[i] / len(y)
            inverses = [torch.linalg.inv(m + d * torch.eye(len(m), dtype=m.dtype))
                        for m, d in ((a, pi * gamma), (g, gamma / pi))]
            w[i] = w[i] - rate * inverses[1] @ whole @ inverses[0]
    return [part for one in w for part in (one[:, :-1], one[:, -1])]


@use
def kfac_of_language_models():
    """Each layout, with and without targets that do not count, of ranks with different numbers of
    them, and one step in which the first rank has none that counts: the steps written by hand of
    the positions that count."""
    size, rank, classes = dist.get_world_size(), dist.get_rank(), 5
    text = "damping=0.1, factors=1, inverses=1, kl=0"

    def batch(step, r, positions, ignored):
        g = torch.Generator().manual_seed(100 * step + r)
        x, y = (torch.randn(4, positions, 6, generator=g, dtype=torch.double),
                torch.randint(classes, (4, positions), generator=g))
        if ignored is not None:
            y[torch.rand(4, positions, generator=g) < 0.15 * (r + 1)] = ignored
            if step == 2 and r == 0:
                y[:] = ignored
        return x, y

    shown = {"last": lambda k, out, y, i: k.loss_of(out, y, ignore_index=i),
             "second": lambda k, out, y, i: k.loss_of(out.transpose(1, 2), y, i),
             "flat": lambda k, out, y, i: k.loss_of(out.flatten(0, 1), y.flatten(), i),
             "flat targets": lambda k, out, y, i: k.loss_of(out, y.flatten(), i),
             "slice": lambda k, out, y, i: k.loss_of(out, y, i),
             "said": lambda k, out, y, i: k.loss_of(out, y, i, layout="classes_last"),
             "untold": lambda k, out, y, i: k.loss_of(out, layout="classes_last")}
    for how, show in shown.items():
        for ignored in (None, -100, 3) if how != "untold" else (None,):
            for ranks in (False, True):
                positions = classes if how == "said" else 3  # where both layouts fit
                torch.manual_seed(1)
                model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, classes)).double()
                counted = []
                for step in range(4):
                    x, y = joined(batch(step, r, positions, ignored)
                                  for r in (range(size) if ranks else [0]))
                    counted.append((x[y != ignored], y[y != ignored])
                                   if ignored is not None else (x.flatten(0, 1), y.flatten()))
                want = kfac_by_hand(list(model.parameters()), counted, 0.2, 0.1)
                one, forward = kfac_of(model, text, ranks, loss_average="batch_positions")
                opt = torch.optim.SGD(model.parameters(), 0.2)
                for step in range(4):
                    x, y = batch(step, rank if ranks else 0, positions, ignored)
                    if how == "slice":  # a position that the loss is not of
                        x = nn.functional.pad(x, (0, 0, 0, 1), value=0.7)
                    index = -100 if ignored is None else ignored
                    if ranks:
                        one.set_batch((y != index).sum())
                    out = forward(x)[:, :positions]
                    show(one.kfac if ranks else one, out, y, index)
                    nn.functional.cross_entropy(out.flatten(0, 1), y.flatten(),
                                                ignore_index=index).backward()
                    one.step(opt)
                    opt.zero_grad()
                for (name, p), q in zip(model.named_parameters(), want):
                    assert (p - q).abs().max() < 1e-12, (how, ignored, ranks, name,
                                                         (p - q).abs().max())

    model = nn.Linear(6, classes)
    pre = lt.KFAC(model, loss_average="batch_positions")
    out, square = model(torch.zeros(2, 3, 6)), model(torch.zeros(2, classes, 6))
    y = torch.zeros(2, 3, dtype=torch.long)
    for attempt, *says in (
            (lambda: pre.loss_of(out), "layout=\"classes_last\""),
            (lambda: lt.KFAC(model).loss_of(out), "layout=\"classes_last\""),
            (lambda: pre.loss_of(square, y.new_zeros(2, classes)), "fit both layouts",
             "layout=\"classes_second\""),
            (lambda: pre.loss_of(out, y, layout="BTV"), "classes_last", "classes_second"),
            (lambda: pre.loss_of(out, y[:, :2]), "found targets [2, 2] for the output [2, 3, 5]"),
            (lambda: pre.loss_of(out, torch.softmax(out, -1)), "layout="),
            (lambda: pre.sample_fisher(out, "softmax_cross_entropy"), "layout=\"classes_last\"")):
        refused(attempt, *says)
    pre.loss_of(out, torch.softmax(out, -1), layout="classes_last")
    pre.loss_of(out.flatten(0, 1), torch.softmax(out, -1).flatten(0, 1))


@use
def kfac_with_labels_drawn_from_the_model():
    """fisher=mc: other factors than the labels' own, the same on every rank, and it trains."""
    losses = []
    _, dp, opt = parallel("ddp+kfac(spd, fisher=mc, factors=1, inverses=1)",
                          opt_of=lambda p: torch.optim.SGD(p, 0.1))
    x, y = rows(0)
    for _ in range(8):
        out = dp(x)
        loss = loss_of(out, y)
        dp.kfac.sample_fisher(out, "softmax_cross_entropy", first_sample=8 * dist.get_rank())
        loss.backward()
        dp.step(opt)
        losses.append(loss.item())
    assert not dp.kfac_step.skipped and losses[-1] < losses[0], losses
    dp.require_same_weights()


@use
def sync_batch_norm_is_refused():
    """PyTorch has no kernel of it for CPUs, and its DDP refuses it, too: on every rank, with the
    layer's name."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(build(Net))
    refused(lambda: DDP(model), "SyncBatchNorm", kind=ValueError)
    refused(lambda: lt.DataParallel(model), 'layer "norm" is a SyncBatchNorm', "use BatchNorm")


CLUSTER = ('{"document": "cluster", "schema": 1, "name": "by hand", "ranks": %d, "network": '
           '{"bandwidth": "%s", "latency": "%s"}}')


def wide():
    return nn.Sequential(nn.Linear(10, 60_000), nn.Tanh(), nn.Linear(60_000, 5))


@use
def auto_is_ddp_bit_for_bit_through_new_plans():
    """Every window departs, so it plans again. Where a message takes a second, one bucket beats
    ddp's two whatever was measured; the plans after that are by what is probed here."""
    want = build_for_sums_of_any_order(wide)
    loop(TorchDDP(want), sgd(want.parameters()), 24)
    seen = []
    for bandwidth, latency in (("1000 Gbit/s", "1 ns"), ("16 Mbit/s", "1 s")):
        model, dp, opt = parallel(
            "auto", wide, build_for_sums_of_any_order, measured_steps=3, replan_above=0.0,
            most_above_ddp=0.01, cluster=CLUSTER % (dist.get_world_size(), bandwidth, latency))
        for step in range(24):
            take_step(dp, opt, step)
            seen.append(dp.plan()["strategy"])
        dp.settle()
        assert dp.plan_number >= 3, dp.plan_number
        assert not dp.plan_is_final
        report = dp.report()
        assert report.strategy == dp.plan()["strategy"] in STRATEGIES + ("wfbp", "horovod",
                                                                         "mg-wfbp"), report.strategy
        if dist.get_rank() == 0:
            assert json.loads(report.to_json())["strategy"] == report.strategy
        require_equal("auto", named(model), named(want))
        texts = dp._world.gather_texts(" ".join(seen), "strategies")
        assert len(set(texts)) == 1, texts
    assert seen[0] == "ddp" and len(set(seen)) > 1, set(seen)


@use
def auto_stays_with_its_plan_while_steps_are_as_predicted():
    _, dp, opt = parallel("auto", measured_steps=2, replan_above=float("inf"))
    loop(dp, opt, 12)
    assert dp.plan_number == 1, dp.plan_number
    if dist.get_rank() == 0:
        assert len(json.loads(dp.report().to_json())["steps"]) == 9 * dist.get_world_size()
    else:
        dp.report()


@use
def auto_does_not_stay_with_what_a_trial_refutes():
    """Where a message takes a second, one bucket is predicted shorter than ddp's two; on these
    links it saves nothing like that."""
    _, dp, opt = parallel("auto", wide, measured_steps=2, replan_above=float("inf"),
                          most_above_ddp=-1,
                          cluster=CLUSTER % (dist.get_world_size(), "16 Mbit/s", "1 s"))
    loop(dp, opt, 18)
    assert "was tried in turn with ddp" in dp.trial and dp.trial.endswith("ddp runs"), dp.trial
    assert dp.plan()["strategy"] == "ddp" and dp.plan_number == 2 and not dp.plan_is_final


TRIAL = 1 + 2 * 2 * (1 + 1)  # steps, with measured_steps=1


@use
def strategies_are_tried_against_ddp():
    """Who wins is set by a bound that every step is above, or below. Weights are DDP's through all
    changes of the plan."""
    want = trained_by_ddp(steps=TRIAL + 3, make=build_for_sums_of_any_order)
    for asked, bound, stays in (("dear", -1, "ddp"), ("dear", 1e9, "dear"), ("optimal", -1, "ddp"),
                                ("mg-wfbp", 1e9, "mg-wfbp")):
        model, dp, opt = parallel(asked, make=build_for_sums_of_any_order, measured_steps=1,
                                  most_above_ddp=bound)
        seen = []
        with Stderr() as said:
            for step in range(TRIAL + 3):
                seen.append(dp.plan()["strategy"])
                assert dp.plan_is_final == bool(dp.trial) == (step >= TRIAL), (step, dp.trial)
                take_step(dp, opt, step)
            dp.settle()
        assert seen == ["ddp"] * 3 + [asked] * 2 + ["ddp"] * 2 + [asked] * 2 + [stays] * 3, seen
        require_equal(asked, named(model), want)
        trial = f"strategy {asked} was tried in turn with ddp: a step took "
        assert trial in dp.trial and dp.trial.endswith(f"{stays} runs"), dp.trial
        assert (dp.strategy == asked and trial in str(dp)
                and (f"now '{stays}'" in str(dp)) == (asked != stays)), str(dp)
        report = dp.report()
        assert report.strategy == stays and report.trial == dp.trial
        assert (f"{trial}" in said.text) == (stays == "ddp" and dist.get_rank() == 0), said.text
        if dist.get_rank() == 0:
            assert json.loads(report.to_json())["strategy"] == stays
        dp.close()
        assert "closed" in str(dp)


@use
def exchange_state_of_a_strategy_that_gave_way():
    """Residuals are the parameters', whichever plan sent them: they go on under ddp, in this run
    and in the next."""
    extra = "+randomk(density=0.2, dense_below=0)"
    model, dp, opt = parallel(f"dear{extra}", measured_steps=1, most_above_ddp=-1)
    loop(dp, opt, TRIAL)
    assert dp.plan()["strategy"] == f"ddp{extra}", dp.plan()["strategy"]
    state = dp.exchange_state()
    assert state["strategy"] == f"dear{extra}" and any(state["compression"])
    for strategy in (f"ddp{extra}", f"dear{extra}"):
        again, resumed, opt = parallel(strategy)
        again.load_state_dict(model.state_dict())
        resumed.load_exchange_state(state)
        assert resumed.exchange_state()["compression"] == state["compression"], strategy
        loop(resumed, opt, 3)
        resumed.require_same_weights()


@use
def reports_are_shown_documented_and_pickled():
    page = (HERE.parents[1] / "docs/python-training.md").read_text()
    _, dp, opt = parallel("ddp+kfac(spd, inverses=1)")
    for step in range(3):
        backward(dp, step)
        report = dp.step(opt)
    assert (report.bytes > 0 and report.exposed_s >= 0 and report.rounds == 1
            and not report.infinite and report.variant)
    for one in (report, dp.kfac_step):
        kind = type(one)
        fields = {name: value.__doc__ for name, value in vars(kind).items()
                  if isinstance(value, property)}
        assert list(one.to_dict()) == list(fields) and len(fields) > 8
        table = page.partition(f"| `{kind.__name__}` |")[2].partition("\n\n")[0]
        assert set(fields) == set(re.findall(r"`(\w+)`", "\n".join(
            row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))))
        for name, says in fields.items():
            assert re.match("(str|float|int|bool|list of str)[:,]", says), (name, says)
            assert (f"{name}={getattr(one, name)!r}" in repr(one)
                    and f"<td>{name}</td>" in one._repr_html_())
        assert repr(one).startswith(kind.__name__ + "(")
        for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert other == one and repr(other) == repr(one) and other is not one
        assert getattr(lt, kind.__name__) is kind
    for one in (dp.report(),
                lt.Advice({"verdict": "change", "best": "dear", "current": "ddp"}, "table", "all")):
        again = pickle.loads(pickle.dumps(one))
        assert (vars(again) == vars(one) and repr(again) == repr(one)
                and " object at " not in repr(one))
        assert one._repr_html_().startswith("<")


@use
def advice_in_the_words_of_the_script():
    import linerate.torch._advice as module
    _, dp, opt = parallel("ddp")
    refused(dp.advise, "no step was recorded yet")
    for step in range(12):
        x, y = rows(step)
        loss = loss_of(dp(x), y)
        time.sleep(0.01)  # under "backward": known to the adviser
        loss.backward()
        dp.step(opt)
    advice = dp.advise(budget=1.0)
    document = advice.to_dict()
    assert (document["ranks"] == dist.get_world_size()
            and document["current"] == advice.current == "ddp"), document
    current = next(c for c in document["candidates"] if c["strategy"] == "ddp")
    # Whatever was measured: what sleeps is in a rank's own time, and a step that exchanges is no
    # shorter.
    assert 0.01 < document["one_rank_step_s"] <= (1 + 1e-9) * current["step_s"]["value"], (
        (document["one_rank_step_s"], current))
    assert advice.verdict in ("change", "do nothing", "inconclusive")
    assert document["present"].startswith("Strategy in use, ddp: measured "), document
    assert document["present"] in advice.text, advice.text
    assert 'strategy="ddp" in DataParallel(...)' in advice.text.splitlines()[0], advice.text
    assert (advice.confidence == document["confidence"] in ("checked", "low")
            and document["measured_step_s"] > 0.01), document
    assert (advice.confidence == "checked" or advice.verdict != "change"
            and "confidence low" in repr(advice)), advice
    torchs = dp.advise(framework="pytorch")
    assert all(c["named"].startswith("DDP(model") for c in torchs.to_dict()["candidates"]), (
        torchs.text)
    assert "linerate.torch " in torchs.text and "register_comm_hook" in torchs.text, torchs.text
    refused(lambda: dp.advise(framework="jax"), "known: pytorch")
    calibrated = dict(module._calibrations)
    far = dp.advise(bandwidth="20kbit/s", strategy="bulk")
    assert module._calibrations == calibrated, "measured twice"
    assert far.to_dict()["bandwidth_bit_per_s"] == 2e4 and far.best, far.text
    assert any(c["strategy"] == "bulk" for c in far.to_dict()["candidates"])
    assert len(set(dp._world.gather_texts(advice.text + far.text, "advice"))) == 1
    parallel(advice.best)  # is a strategy
    refused(lambda: dp.advise(strategy="nonsense"), "nonsense")
    topk = dp.advise(strategy="ddp+topk(density=0.01)", steps_to_target="topk=1.5",
                     bandwidth="20kbit/s")
    row = next(c for c in topk.to_dict()["candidates"] if c["strategy"] == "ddp+topk(density=0.01)")
    assert row["steps_to_target"]["value"] == 1.5, row
    assert len(topk.to_text(all=True)) >= len(topk.text) == len(topk.to_text())
    assert not re.search(r"(?<![\w-])--[a-z]", topk.to_text(all=True)), "Python's words"
    refused(lambda: dp.advise(steps_to_target="nonsense"), "steps_to_target=: ")


@use
def skip_and_refuse():
    model, dp, opt = parallel("dear")
    before = named(model)
    backward(dp, 0)
    dp.skip_step()
    require_equal("skipped", named(model), before, exact=True)
    backward(dp, 0)
    if dist.get_rank() == 1:
        dp.refuse_step("the disk is full")
    refused(lambda: dp.step(opt), "the disk is full", "rank 1", kind=lt.InputError)
    model.zero_grad()
    take_step(dp, opt, 0)
    dp.settle()
    dp.require_same_weights()


@use
def ddps_options_are_refused_in_words():
    """Every one of PyTorch's that is no option here, each with what to say in its place."""
    import inspect
    ours = inspect.signature(lt.DataParallel).parameters
    theirs = [n for n in inspect.signature(DDP).parameters if n not in ours]
    assert "find_unused_parameters" in theirs and "static_graph" in theirs
    for option in theirs:
        refused(lambda: lt.DataParallel(build(Mlp), **{option: True}), f"DataParallel: {option}=: ",
                kind=TypeError)
    refused(lambda: lt.DataParallel(build(Mlp), broadcast_buffers=False,
                                    find_unused_parameters=True),
            'say buffers="broadcast" or buffers="keep"; find_unused_parameters=: leave it out',
            kind=TypeError)


@use
def models_that_others_exchange_are_refused():
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    sharded = build(Mlp)
    fully_shard(sharded[0])
    half = build(Mlp)
    half[0].weight = nn.Parameter(sharded[0].weight)
    _, dp, _ = parallel("ddp")
    cases = (
        (DDP(build(Mlp)), "the model is a DistributedDataParallel, which exchanges gradients "
                          "itself: wrap its .module"),
        (nn.Sequential(DDP(build(Mlp))), 'layer "0" is a DistributedDataParallel'),
        (FullyShardedDataParallel(build(Mlp), device_id=torch.device("cpu")),
         "the model is sharded by FSDP"),
        (sharded, 'layer "0" is sharded by FSDP'),
        (dp, "the model is a DataParallel already"),
    )
    for model, says in cases:
        refused(lambda: lt.DataParallel(model), says)


@use
def models_that_cannot_be_exchanged_are_refused():
    with torch.device("meta"):
        meta = Mlp()
    complex_ = build(Mlp)
    complex_[0].weight = nn.Parameter(torch.zeros(24, 10, dtype=torch.cfloat))
    cases = (
        (meta, "lies on meta"),
        (complex_, 'parameter "0.weight" has type ComplexFloat'),
        (nn.Sequential(nn.LazyLinear(4)),
         'parameter "0.weight" has no shape yet: run one forward pass'),
        (nn.Sequential(nn.Embedding(9, 4, sparse=True)), 'layer "0" makes sparse gradients'),
        (nn.ReLU(), "no parameter requires a gradient"),
        (build(Mlp).requires_grad_(False), "no parameter requires a gradient"),
        ([nn.Linear(2, 2)], "expected a torch.nn.Module, found list"),
    )
    for model, says in cases:
        refused(lambda: lt.DataParallel(model), says)
    refused(lambda: lt.DataParallel(build(Mlp), strategy=None),
            "strategy=: expected a line of text")
    refused(lambda: lt.DataParallel(build(Mlp), strategy="deer"), 'did you mean "dear"')
    refused(lambda: lt.DataParallel(meta if lt.rank() == 1 else build(Mlp)),
            'rank 1: parameter "0.weight" lies on meta')


@use
def wrappers_are_not_copied_but_modules_are():
    model, dp, opt = parallel("dear")
    loop(dp, opt, 2)
    take_step(dp, opt, 2)
    copied = copy.deepcopy(model)  # while updates wait
    dp.settle()
    require_equal("copy", named(copied), named(model), exact=True)
    for attempt in (copy.deepcopy, pickle.dumps, torch.optim.swa_utils.AveragedModel):
        refused(lambda: attempt(dp), "copy or save dp.module")
    refused(lambda: copy.deepcopy(lt.KFAC(model)), "save state_dict()")
    _, other, opt = parallel("dear", make=lambda _: copied)
    loop(other, opt, 2)
    other.require_same_weights()
    dp.close()
    refused(lambda: dp(rows(0)[0]), "has been closed")


@use
def name_is_the_users():
    """In messages, and without one it is none of a layer's."""
    for name, called in (("critic", 'DataParallel "critic"'), ("", "DataParallel")):
        _, dp, _ = parallel("ddp", name=name)
        dp.refuse_step("no reason")
        try:
            dp.finish()
            raise AssertionError("no error")
        except lt.InputError as e:
            assert called in str(e) and '"4"' not in str(e), e


class Odd(Mlp):
    """Parameters without elements, without dimensions, of two types, of any strides."""

    def __init__(self):
        super().__init__()
        self.none, self.scale = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.tensor(0.5))
        self.turned = nn.Parameter(torch.randn(5, 10).t())
        self[2].double()

    def forward(self, x):
        hidden = self[2](self[1](self[0](x)).double()).float()
        return self[4](self[3](hidden)) * self.scale + x @ self.turned + self.none.sum()


@use
def parameters_of_any_shape_and_type():
    same_steps_as_ddp(of=Odd, steps=4)


@use
def requires_grad_between_steps():
    def train(wrap):
        model = build(Mlp)
        model[2].requires_grad_(False)
        dp = wrap(model)
        opt = sgd(model.parameters())
        for layer, on in ((2, True), (0, False), (0, True)):
            loop(dp, opt, 2)
            model[layer].requires_grad_(on)
            made_anew(dp)
        loop(dp, opt, 2)
        dp.close()
        return model
    same_as_ddp(train)


@use
def passes_that_throw():
    """In backward, and Ctrl-C in forward while updates wait: skip_step(), and the next step is as
    if nothing had been."""
    def boom(_):
        raise ValueError("boom")

    def stop(*_):
        raise KeyboardInterrupt

    def step_of(dp, opt, step):
        model = dp.module
        hook = model[2].weight.register_hook(boom)
        refused(lambda: backward(dp, step), "boom", kind=ValueError)
        hook.remove()
        dp.skip_step()
        model.zero_grad()
        take_step(dp, opt, step)
        hook = model[2].register_forward_hook(stop)
        refused(lambda: dp(rows(step)[0]), kind=KeyboardInterrupt)
        hook.remove()
    same_steps_as(trained_by_ddp(), step_of, steps=4)


@use
def loss_that_is_no_number():
    def train(wrap):
        def step_of(dp, opt, step):
            backward(dp, step,
                     factor=float("nan") if step == 1 and dist.get_rank() == 1 else 1)
            dp.step(opt)
        found = trained(wrap, step_of, steps=3, opt_of=sgd_alone)
        return [(n, torch.nan_to_num(p, 777.0)) for n, p in found]
    same_as_ddp(train)


@use
def steps_enqueued_on_the_cpu():
    """The code for parameters on a device, over the group's own collectives: DDP's weights."""
    def end(dp):
        assert dp.last_report.host_waits == 0 and not dp.last_report.late_infinite
        dp.require_same_weights()  # and buffers
    same_steps_as(trained_by_ddp(Net, steps=6), of=Net, end=end, device_group=dist.group.WORLD,
                  most_above_ddp=0.01)


@use
def enqueued_steps_are_recorded():
    """By moments of the device, which the report reads: the tasks that steps without device_group
    have, between the bounds of their step."""
    kinds = []
    for device_group in (None, dist.group.WORLD):
        _, dp, opt = parallel("ddp", device_group=device_group)
        loop(dp, opt, 12)
        path = os.path.join(tempfile.gettempdir(), f"enqueued_{os.getpid()}.json")
        dp.report().save(path)
        if device_group is not None:
            refused(dp.advise, "steps are enqueued")
        if dist.get_rank() != 0:
            continue
        with open(path, encoding="utf-8") as file:
            timeline = json.load(file)
        os.remove(path)
        steps = {(s["rank"], s["index"]): (s["start_ns"], s["end_ns"]) for s in timeline["steps"]}
        assert len(steps) >= 5 * dist.get_world_size(), steps
        events = [dict(zip(timeline["event_columns"], row)) for row in timeline["events"]]
        for e in events:
            start, end = steps[e["rank"], e["step"]]
            assert start <= e["start_ns"] <= e["end_ns"] <= end, (e, start, end)
        kinds.append(sorted((e["rank"], e["step"], e["kind"]) for e in events))
    if dist.get_rank() == 0:
        assert (kinds[0] == kinds[1]
                and {k for _, _, k in kinds[0]} >= {"forward", "backward", "all-reduce"}), kinds


@use
def compressors_and_kfac_enqueued_together():
    """By the code for parameters on a device: batches of one rank that are no numbers leave no rank
    with others' weights, or none."""
    for strategy in ("ddp+topk(density=0.3, dense_below=0)+kfac(d, factors=1)",
                     "dear+kfac(spd, kl=0, factors=1)",
                     "dear+fp16+kfac(spd, kl=0, factors=1)"):
        model, dp, opt = parallel(strategy, opt_of=lambda p: torch.optim.SGD(p, 0.01),
                                  device_group=dist.group.WORLD)
        for step in range(8):
            x, y = rows(step)
            if step in (0, 5) and dist.get_rank() == dist.get_world_size() - 1:
                x = x * float("nan")
            loss_of(dp(x), y).backward()
            dp.step(opt)
        dp.settle()
        assert all(p.isfinite().all() for p in model.parameters()), strategy
        dp.require_same_weights()


@use
def threads_train_two_models():
    """Neither on the thread that made it."""
    import threading

    def train(wrap):
        groups = [dist.new_group(), dist.new_group()]
        models = [build(Mlp), build(lambda: Mlp(nn.Tanh()))]
        dps = [wrap(m, process_group=g) for m, g in zip(models, groups)]
        failed = []

        def run(model, dp):
            try:
                loop(dp, sgd(model.parameters()), 3)
            except Exception:
                failed.append(traceback.format_exc())
        threads = [threading.Thread(target=run, args=pair) for pair in zip(models, dps)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed[0]
        for dp in dps:
            dp.close()
        return [t for m in models for t in m.named_parameters()]
    same_as_ddp(train)


@use
def one_rank_evaluates_and_saves_alone():
    """Forward passes and state_dict() of one rank, while updates wait and others go on, are no
    collectives."""
    def step_of(dp, opt, step):
        take_step(dp, opt, step)
        if dist.get_rank() == 0:
            dp.eval()
            with torch.no_grad():
                dp(images(step)[0])
            dp.train()
            dp.state_dict()
    same_steps_as(trained_by_ddp(Net, broadcast_buffers=False), step_of, of=Net, steps=4,
                  buffers="keep")


@use
def checkpoint_around_the_wrapper():
    """Its reentrant form runs forward under no_grad first, which DDP refuses: against DDP without
    it."""
    from torch.utils.checkpoint import checkpoint
    for reentrant in (True, False):
        def step_of(dp, opt, step, reentrant=reentrant):
            x, y = rows(step)
            loss_of(checkpoint(dp, x.requires_grad_(), use_reentrant=reentrant), y).backward()
            dp.step(opt)
        same_steps_as(trained_by_ddp(), step_of, steps=4)


@use
def optimizers_that_do_not_fit_the_model():
    """A rate of 0, and parts of the model."""
    def train(wrap):
        with wrapped(wrap) as (model, dp, _):
            for opt in (torch.optim.SGD(model.parameters(), 0.0, momentum=0.9),
                        sgd(model[0].parameters())):
                for step in range(2):
                    take_step(dp, opt, step)
                    model.zero_grad()
        return model
    said = said_while(lambda: same_as_ddp(train))
    assert len(said) == len(STRATEGIES) and all('SGD(momentum=0.9) does not hold 4 of '
                                                '6 parameters that got gradients '
                                                '("2.weight"' in w for w in said), said


def main(names):
    lt.init(timeout=60)
    torch.set_num_threads(1)
    failed = []
    # Once anything was compiled or captured, dear's updates are done before each forward pass:
    # those uses come last.
    for name in [n for n in names if n in USES] or sorted(USES, key=lambda n: "compile" in n
                                                          or "graphs" in n):
        start = time.perf_counter()
        try:
            USES[name]()
            while OPEN:
                OPEN.pop().close()
            print(f"rank {dist.get_rank()}: use {name}: ok, {time.perf_counter() - start:.1f} s",
                  flush=True)
        except Exception:
            failed.append(name)
            print(f"rank {dist.get_rank()}: use {name}: FAILED\n{traceback.format_exc()}",
                  flush=True)
            if "--keep-going" not in names:
                break  # the ranks are no longer in step
    return 1 if failed else 0


if __name__ == "__main__":
    import uses
    import uses_of_loops  # noqa: F401  into uses.USES
    import uses_of_models  # noqa: F401
    import uses_of_scalers  # noqa: F401
    sys.exit(uses.main(sys.argv[1:]))
