"""Gradient scalers: whatever they do to the loss, the run is the one without them, bit for bit:
part of uses.py, which runs it."""
import gc
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import linerate.torch as lt
from uses import (Mlp, TorchDDP, backward, build, loss_of, named, parallel, refused, require_equal,
                  rows, said_while, sgd_alone, trained, use, wrappers)

SCALES = (64.0, 64.0, 4096.0, 0.125, 1.0, 65536.0, 2.0, 2.0)
OVERFLOWS = (0, 3)  # steps in which a rank's gradients are not finite
# Of each kind of method one, by each exchange; torch.loss_scale has the whole registry.
CODECS = ("topk(density=0.1, dense_below=0)", "powersgd(rank=1, warmup=3, dense_below=0)",
          "dgc(density=0.1, warmup=3, dense_below=0)", "onebit-adam(freeze_step=3, dense_below=0)",
          "topk(density=0.1, exchange=two-phase, dense_below=0)",
          "qsgd(bits=4, exchange=two-phase, dense_below=0)",
          "efsignsgd(exchange=two-phase, dense_below=0)", "fp16")


class Weights(nn.Module):
    """Gradients that are given, of magnitudes that f16 holds as normal numbers under any of the
    scales that fp16 is run with."""

    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.zeros(48, 40)), nn.Parameter(torch.zeros(33))

    def forward(self, step, micro=0):
        g = torch.Generator().manual_seed(100 * step + 10 * micro + dist.get_rank())
        loss = 0
        for p in (self.w, self.v):
            given = torch.randn(p.shape, generator=g)
            loss = loss + (p * (given + given.sign() / 2)).sum()
        return loss


class Ordinary(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = Mlp()

    def forward(self, step, micro=0):
        x, y = rows(100 * step + micro)
        return loss_of(self.mlp(x), y)


def end_step(dp, opt, scaler, way, model, most_norm):
    """By the wrapper ("step", "given"), or as a loop that clips does ("finish"; "finish, to zeros"
    keeps gradients' memory)."""
    if way in ("step", "given"):
        dp.step(opt, scaler=scaler)
        return
    dp.finish()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(model.parameters(), most_norm)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad(set_to_none=way != "finish, to zeros")


def train(strategy, way, scaled, micros, make):
    """The weights after the steps; without a scaler those that overflow are left out. `way`: how a
    scaled step ends."""
    scales = [min(s, 4096.0) if make is Weights else s for s in SCALES]
    scaler = torch.amp.GradScaler("cpu", init_scale=scales[0], growth_interval=10**6,
                                  enabled=scaled)
    model, dp, opt = parallel(strategy, make, opt_of=sgd_alone,
                              **({"scaler": scaler} if way == "given" else {}))
    for step in range(8):
        spoilt = step in OVERFLOWS and dist.get_rank() == dist.get_world_size() - 1
        if step in OVERFLOWS and not scaled:
            continue
        for micro in range(micros):
            last = micro == micros - 1
            loss = dp(step, micro) / micros * (float("inf") if spoilt and last else 1)
            if last:
                scaler.scale(loss).backward()
            else:
                with dp.no_sync():
                    scaler.scale(loss).backward()
        end_step(dp, opt, scaler, way, model, 1e6)
        if scaled:
            assert (scaler.get_scale() < scales[step % len(scales)]) == (step in OVERFLOWS), (
                f"{strategy}, {way}, step {step}: {scaler.get_scale()}")
            scaler.update(scales[(step + 1) % len(scales)])
    dp.require_same_weights()
    dp.close()
    return list(model.named_parameters())


@use
def scalers_change_nothing_of_what_compressors_keep():
    for codec in CODECS:
        make = Weights if codec.startswith("fp16") else Ordinary
        for micros in (1, 2):
            plain = train(f"ddp+{codec}", "step", False, micros, make)
            for way in ("step", "finish", "given"):
                require_equal(f"{codec}, {way}, {micros} backward passes",
                              train(f"ddp+{codec}", way, True, micros, make), plain)


@use
def dense_strategies_under_a_scaler_are_ddp():
    """Overflows as f16 has them: the scale begins too high, grows until it overflows again, and one
    rank has a batch without a number in between. Weights are DDP's after each step and so are
    scales, by the code for devices and without."""
    def run(wrap, way):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=2)
        scales = []

        def step_of(dp, opt, step):
            x, y = rows(step)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = loss_of(dp(x), y)
            spoilt = step == 15 and dist.get_rank() == 1
            scaler.scale(loss * float("nan") if spoilt else loss).backward()
            end_step(dp, opt, scaler, way, dp.module, 0.5)
            dp.settle()
            scales.append(scaler.get_scale())
            return [(f"scale after step {step}", torch.tensor(scales[-1])),
                    *((f"{n} after step {step}", p) for n, p in named(dp.module))]
        found = trained(wrap, step_of, steps=24, opt_of=lambda p: torch.optim.SGD(
            p, 0.05, momentum=0.9, weight_decay=0.01))
        falls = [step for step in range(1, len(scales)) if scales[step] < scales[step - 1]]
        # some at first, in between, by growth
        assert scales[0] == 2.0**23 and 15 in falls and falls[-1] > 16, scales
        return found

    for way in ("step", "finish", "finish, to zeros"):
        want = run(TorchDDP, way)
        for group in (None, dist.group.WORLD):
            for strategy, wrap in wrappers():
                require_equal(f"{strategy}, {way}, {'on the CPU' if group is None else 'enqueued'}",
                              run(lambda model: wrap(model, device_group=group), way), want)


@use
def owed_flows_out_under_a_scaler():
    """After a scaler's last step plain backward passes: what is owed comes in the scale that the
    scaler has."""
    for scaled in (False, True):
        (w,), dp, opt = parallel("ddp+topk(density=0.05, dense_below=0)",
                                 make=lambda _: nn.ParameterList([torch.zeros(32, 32)]),
                                 opt_of=lambda p: torch.optim.SGD(p, 1.0))
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2, enabled=scaled)
        given = torch.zeros(32, 32)
        for step in range(8):
            g = torch.randn(32, 32, generator=torch.Generator().manual_seed(step))
            given += g
            scaler.scale((w * g).sum()).backward()
            dp.step(opt, scaler=scaler)
        for way in range(80):
            (w * 0).sum().backward()
            if way % 2:
                dp.step(opt)  # unscales nothing
                continue
            dp.finish()
            with torch.no_grad():
                w -= w.grad / scaler.get_scale()
            w.grad = None
        off = (w.detach() + given).abs().max()
        assert off < 1e-5 * given.abs().max(), off


@use
def two_models_under_two_scalers():
    """As a GAN is trained: the generator's pass leaves gradients in the discriminator, in the other
    scale."""
    def run(scaled, to_none=True):
        models, dps, opts = zip(*(
            parallel("ddp+topk(density=0.2, dense_below=0)", lambda: nn.Linear(10, out),
                     opt_of=sgd_alone, name=name) for name, out in (("gen", 10), ("disc", 1))))
        scalers = [torch.amp.GradScaler("cpu", init_scale=s, growth_interval=g, enabled=scaled)
                   for s, g in ((256.0, 2), (16.0, 3))]
        for step in range(8):
            x, _ = rows(step)
            opts[1].zero_grad(set_to_none=to_none)
            scalers[1].scale(dps[1](x).square().mean()).backward()
            scalers[1].scale(dps[1](dps[0](x).detach()).sigmoid().mean()).backward()
            dps[1].step(opts[1], scaler=scalers[1])
            opts[0].zero_grad(set_to_none=to_none)
            scalers[0].scale(-dps[1](dps[0](x)).mean()).backward()
            dps[0].step(opts[0], scaler=scalers[0])
        return [p for model in models for p in model.named_parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        require_equal("two scalers", run(True), run(False))
        require_equal("two scalers, cleared to zeros", run(True, False), run(False, False))


def steps_of(step_of, make=Ordinary, scaler=None):
    model, dp, opt = parallel("ddp+topk(density=0.1, dense_below=0)", make, opt_of=sgd_alone)
    for step in range(6):
        step_of(dp, opt, step, scaler)
        if scaler is not None:
            scaler.update(SCALES[step])
    return list(model.named_parameters())


def plainly(dp, opt, step, _):
    (dp(step) + dp(step, 1)).backward()
    dp.step(opt)


def summed(dp, opt, step, scaler):
    scaler.scale(dp(step) + dp(step, 1)).backward()
    dp.step(opt, scaler=scaler)


def new(kind=torch.amp.GradScaler):
    return kind("cpu", init_scale=8.0)


class Derived(torch.amp.GradScaler):
    """A scaler of one's own."""

    def scale(self, outputs):
        return super().scale(outputs)


@use
def scalers_of_every_kind():
    """Losses in lists and generators, derived scalers, scalers that are not torch's,
    checkpoints."""
    def listed(dp, opt, step, scaler):
        torch.autograd.backward(scaler.scale([dp(step), dp(step, 1)]))
        dp.step(opt, scaler=scaler)

    def generated(dp, opt, step, scaler):
        torch.autograd.backward(list(scaler.scale(one for one in (dp(step), dp(step, 1)))))
        dp.step(opt, scaler=scaler)

    class Foreign:
        """Not one of torch's: only step(scaler=) knows of it."""

        def __init__(self):
            self.inner = torch.amp.GradScaler("cpu", init_scale=8.0)
            self.step, self.update, self.get_scale = (self.inner.step, self.inner.update,
                                                      self.inner.get_scale)

        def scale(self, loss):
            self.inner.scale(torch.ones(()))
            return loss * self.get_scale()

    class Checkpointed(Ordinary):
        reentrant = True

        def forward(self, step, micro=0):
            x, y = rows(100 * step + micro)
            return loss_of(checkpoint(self.mlp, x.requires_grad_(), use_reentrant=self.reentrant),
                           y)

    want = steps_of(plainly)
    require_equal("a list", steps_of(listed, scaler=new()), want)
    require_equal("a generator", steps_of(generated, scaler=new()), want)
    require_equal("a derived class", steps_of(summed, scaler=new(Derived)), want)
    require_equal("a foreign scaler", steps_of(summed, scaler=Foreign()), want)
    require_equal("a reentrant checkpoint", steps_of(summed, Checkpointed, new()),
                  steps_of(plainly, Checkpointed))
    Checkpointed.reentrant = False
    require_equal("a checkpoint", steps_of(summed, Checkpointed, new()), want)


@use
def compiled_models_under_a_scaler():
    class Compiled(Ordinary):
        def __init__(self):
            super().__init__()
            self.mlp.compile(backend="eager")
    require_equal("a compiled model", steps_of(summed, Compiled, new()),
                  steps_of(plainly, Compiled))


@use
def two_scales_in_one_step_are_refused():
    _, dp, opt = parallel("ddp+topk(density=0.1, dense_below=0)", opt_of=sgd_alone)
    scaler = new()
    for changes in (False, True, False):
        with dp.no_sync():
            backward(dp, 0, scaler, 0.5)
        if changes and dist.get_rank() == 0:
            scaler.update(16.0)
        backward(dp, 0, scaler, 0.5)
        if changes:
            refused(lambda: dp.step(opt, scaler=scaler), "found them added up under 8 and 16")
            scaler = new()
            opt.zero_grad()
        else:
            dp.step(opt, scaler=scaler)
    dp.require_same_weights()
    scaler.update(32.0 if dist.get_rank() == 0 else 64.0)
    backward(dp, 0, scaler)
    refused(lambda: dp.step(opt, scaler=scaler),
            "expected the same loss scale on every rank, found 32 on rank 0 and 64 on rank 1")


@use
def ddp_hook_under_a_scaler():
    def run(scaled):
        ddp = TorchDDP(build(Mlp))
        ddp.dp.register_comm_hook(*lt.ddp_hook("topk(density=0.1, dense_below=0)"))
        opt, scaler = (sgd_alone(ddp.module.parameters()),
                       torch.amp.GradScaler("cpu", init_scale=64.0, enabled=scaled))
        for step in range(8):
            backward(ddp, step, scaler)
            ddp.step(opt, scaler)
            if scaled:
                scaler.update(SCALES[step])
        return named(ddp.module)
    want = run(False)
    gc.collect()
    said = said_while(lambda: require_equal("hook", run(True), want))
    assert sum("GradScaler skips whole steps" in one for one in said) == 1, said
