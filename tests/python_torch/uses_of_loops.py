"""What users do in a training loop, each against DDP or against one rank with every rank's batches:
part of uses.py, which runs it."""
import warnings

import torch
import torch.distributed as dist
from torch import nn

import linerate.torch as lt
from linerate.torch import _core, _optimizers
from uses import (OPEN, STRATEGIES, Branches, Mlp, Net, Stderr, backward, build,
                  build_for_sums_of_any_order, images, loss_of, made_anew, named, parallel, refused,
                  require_equal, rows, said_while, same_as_ddp, same_steps_as, same_steps_as_ddp,
                  sgd, sgd_alone, take_step, trained, trained_by_ddp, use, use_of_steps, wrapped)


def mean_of_ranks(grads_of, steps=4):
    """The weights of one model, trained by the mean of grads_of(model, step, rank) over the
    ranks."""
    model = build(Mlp)
    opt = sgd(model.parameters())
    for step in range(steps):
        every = [grads_of(model, step, r) for r in range(dist.get_world_size())]
        for p, grads in zip(model.parameters(), zip(*every)):
            given = [g for g in grads if g is not None]
            p.grad = sum(given) / dist.get_world_size() if given else None
        opt.step()
    return named(model)


def by_autograd(model, step, rank):
    x, y = rows(step, rank)
    return torch.autograd.grad(loss_of(model(x), y), list(model.parameters()))


@use
def gradients_that_the_program_writes():
    """From autograd.grad() and torch.func: what stands in .grad is exchanged, whoever put it there,
    as far as it is there."""
    from torch.func import functional_call, grad

    def by_func(model, step, rank):
        x, y = rows(step, rank)
        weights = {n: p.detach() for n, p in model.named_parameters()}
        return list(grad(lambda w: loss_of(functional_call(model, w, (x,)), y))(weights).values())

    def by_rank(model, step, rank):  # some of them, on some ranks
        return [g if (k + step + rank) % 2 else None
                for k, g in enumerate(by_autograd(model, step, rank))]

    for grads_of in (by_autograd, by_func, by_rank):
        def step_of(dp, opt, step, grads_of=grads_of):
            model = dp.module
            for p, g in zip(model.parameters(), grads_of(model, step, dist.get_rank())):
                p.grad = g
            dp.step(opt)
        with Stderr() as said:
            same_steps_as(mean_of_ranks(grads_of), step_of, steps=4, exact=False,
                          end=lt.DataParallel.require_same_weights)
        assert "without a backward pass" not in said.text, said.text


@use
def gradients_replaced_and_removed():
    """After backward(), on one rank: what stands there at the step counts."""
    def changed(grads, rank):
        grads = list(grads)
        if rank == 1:
            grads[0], grads[3] = None, torch.ones_like(grads[3])
        return grads

    def grads_of(model, step, rank):
        return changed(by_autograd(model, step, rank), rank)

    def step_of(dp, opt, step):
        backward(dp, step)
        parameters = list(dp.module.parameters())
        for p, g in zip(parameters, changed([p.grad for p in parameters], dist.get_rank())):
            p.grad = g
        dp.step(opt)
    with Stderr():  # that it is exchanged twice
        same_steps_as(mean_of_ranks(grads_of), step_of, steps=4, exact=False)


@use
def backward_passes_before_a_step():
    """Two, without no_sync: gradients are their sum, as on one rank."""
    def grads_of(model, step, rank):
        return [a + b for a, b in zip(by_autograd(model, 2 * step, rank),
                                      by_autograd(model, 2 * step + 1, rank))]

    def step_of(dp, opt, step):
        backward(dp, 2 * step)
        take_step(dp, opt, 2 * step + 1)
    same_steps_as(mean_of_ranks(grads_of, steps=3), step_of, steps=3, exact=False)


@use_of_steps(steps=4)
def gradient_penalty(dp, opt, step):
    """The second derivative of the output by the input, in the loss."""
    x, y = rows(step)
    x.requires_grad_()
    out = dp(x)
    slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
    (loss_of(out, y) + (slope.norm(dim=1) - 1).square().mean()).backward()
    dp.step(opt)


@use
def graph_that_is_kept():
    """Two backward passes through one graph, the first without an exchange."""
    def twice(model, step, rank):
        return [2 * g for g in by_autograd(model, step, rank)]

    def step_of(dp, opt, step):
        x, y = rows(step)
        loss = loss_of(dp(x), y)
        with dp.no_sync():
            loss.backward(retain_graph=True)
        loss.backward()
        dp.step(opt)
    same_steps_as(mean_of_ranks(twice), step_of, steps=4, exact=False)


@use_of_steps(of=Branches, steps=5, ddp={"find_unused_parameters": True})
def gradients_cleared_to_zeros(dp, opt, step):
    opt.zero_grad(set_to_none=False)
    backward(dp, step)
    dp.finish()
    opt.step()


@use
def optimizers_fused_and_in_lists():
    kinds = (("SGD", {"lr": 0.05, "momentum": 0.9, "foreach": True}),
             ("SGD", {"lr": 0.05, "momentum": 0.9, "fused": True}),
             ("AdamW", {"lr": 1e-2, "foreach": True}), ("Adam", {"lr": 1e-2, "fused": True}),
             ("Adam", {"lr": 1e-2, "maximize": True}), ("Adam", {"lr": torch.tensor(1e-2)}))
    for name, options in kinds:
        same_steps_as_ddp(steps=4, strategies=("ddp", "dear"), make=build_for_sums_of_any_order,
                          opt_of=lambda parameters: getattr(torch.optim, name)(parameters,
                                                                               **options))


@use
def clipping_with_a_scaler():
    """finish(), then as without ranks; unscale_() before the exchange would judge by this rank's
    gradients alone."""
    def train(wrap, clips=True):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

        def step_of(dp, opt, step):
            overflows = step == 3 and dist.get_rank() == 1
            backward(dp, step, scaler, float("inf") if overflows else 1)
            if not clips:
                dp.step(opt, scaler=scaler)
                return
            dp.finish()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(dp.module.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        weights = trained(wrap, step_of, make=build_for_sums_of_any_order,
                          opt_of=lambda p: torch.optim.Adam(p, 1e-3, fused=True))
        return [*((n, p.double()) for n, p in weights),
                ("scale", torch.tensor(scaler.get_scale()))]
    same_as_ddp(train)
    same_as_ddp(lambda wrap: train(wrap, clips=False), strategies=("ddp", "dear"))

    _, dp, opt = parallel("ddp")
    scaler = torch.amp.GradScaler("cpu")
    backward(dp, 0, scaler)
    scaler.unscale_(opt)
    refused(lambda: dp.step(opt, scaler=scaler), "before they were exchanged: call finish() first")
    dp.finish()
    scaler.step(opt)


@use
def a_rank_without_a_loss():
    """In the last micro-batch of an accumulation, where DDP would wait for it, and in all of
    them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for last_alone in (True, False):
        def has(rank, step, micro, last_alone=last_alone):
            return rank != step % size or (last_alone and micro == 0)

        def grads_of(model, step, rank, has=has):
            parameters, losses = list(model.parameters()), []
            for micro in (0, 1):
                if has(rank, step, micro):
                    x, y = rows(2 * step + micro, rank)
                    losses.append(loss_of(model(x), y))
            return (torch.autograd.grad(sum(losses), parameters)
                    if losses else [None] * len(parameters))

        def step_of(dp, opt, step, has=has):
            with dp.no_sync():
                if has(rank, step, 0):
                    backward(dp, 2 * step)
            if has(rank, step, 1):
                backward(dp, 2 * step + 1)
            dp.step(opt)
        with Stderr():  # that a rank has no backward pass
            same_steps_as(mean_of_ranks(grads_of), step_of, steps=4, exact=False,
                          end=lt.DataParallel.require_same_weights)


@use
def evaluation_mode_with_gradients():
    """Statistics stand still, weights do not; parameters that are used under no_grad alone are
    unused."""
    def step_of(dp, opt, step):
        dp.train(step % 2 == 0)
        take_step(dp, opt, step)
        with torch.no_grad():
            dp(images(step)[0])
    same_steps_as_ddp(step_of, of=Net, steps=4)

    class Probe(Mlp):
        def forward(self, x):
            with torch.no_grad():
                x = self[2](self[1](self[0](x)))
            return self[4](x)

    def end(dp):
        assert dp.module[0].weight.grad is None
    same_steps_as_ddp(of=Probe, steps=4, end=end, ddp={"find_unused_parameters": True})


@use
def steps_that_would_be_wrong_are_refused():
    (model, dp, _), (other, second, _) = parallel("ddp"), parallel("ddp")
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
    for one in (dp, second):
        backward(one, 0)
    refused(lambda: dp.step(both), 'also steps "0.weight" of another DataParallel',
            "call finish() of both")
    refused(lambda: dp.step([both]), "expected an optimizer, found list")
    refused(lambda: dp.step(both, scaler=torch.amp.GradScaler("cpu"), closure=lambda: None),
            "closure=")
    second.finish()
    dp.step(both)  # both exchanged
    second._discard()
    for one in (dp, second):
        one.require_same_weights()
        one.close()
    require_equal("joint", named(model), named(other), exact=True)

    _, dp, opt = parallel("ddp+onebit-adam(dense_below=0)", make=lambda _: model, opt_of=sgd_alone)
    backward(dp, 0)
    refused(lambda: dp.step(torch.optim.AdamW(model.parameters())),
            "onebit-adam(dense_below=0) with AdamW", "sends Adam's first moment")
    dp.step(opt)
    with dp.no_sync():
        dp.close()
    _, dp, _ = parallel("ddp + kfac(spd)", make=lambda _: model)  # blanks change nothing
    assert dp.kfac is not None


class Lion(torch.optim.Optimizer):
    """As programs write it: by the sign of an average, which no group of torch.optim's has."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(torch.sign(p.grad), alpha=-group["lr"])


@use
def momentum_beside_a_compressor_that_has_its_own():
    """What the exchange hears of an optimizer, by its groups as they are now. Momentum is refused
    on every rank, whichever has it and whenever it came; a first moment is doubted once."""
    optim, p, by = torch.optim, list(build(Mlp).parameters()), _core.StepsBy
    cycled = optim.SGD(p, 0.01, momentum=0.0)
    optim.lr_scheduler.OneCycleLR(cycled, 0.01, 10)  # cycles momentum, and begins at once
    for opt, name, steps_by in (
            (optim.SGD(p, 0.01), "SGD", by.gradients), (sgd(p), "SGD(momentum=0.9)", by.sum),
            (optim.SGD(p, 0.01, momentum=0.9, nesterov=True), "SGD(momentum=0.9)", by.sum),
            (optim.SGD([{"params": p[:2]}, {"params": p[2:], "momentum": 0.1}], 0.01),
             "SGD(momentum=0.1)", by.sum),
            (cycled, "SGD(momentum=0.95)", by.sum), (Lion(p, 1e-3), "Lion", by.average),
            (optim.RMSprop(p, 1e-3, momentum=0.9), "RMSprop", by.average),
            *((getattr(optim, kind)(p, 1e-3), kind, by.adams)
              for kind in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")),
            *((getattr(optim, kind)(p, 1e-3), kind, by.gradients)
              for kind in ("Adagrad", "Adadelta", "RMSprop", "Rprop"))):
        found = _optimizers.described(opt)
        assert (found[0], found[3]) == (name, steps_by), found

    strategy = "ddp+dgc(density=0.1, dense_below=0)"

    def said_of(opt_of, late=None):
        _, dp, opt = parallel(strategy, opt_of=opt_of)

        def run():
            for step in range(4):
                if step == 2 and late is not None:
                    opt.param_groups[-1]["momentum"] = late
                take_step(dp, opt, step)
        said = said_while(run)
        dp.require_same_weights()
        return said

    def plain(parameters, momentum=0.0):
        return optim.SGD(parameters, 0.01, momentum=momentum)

    refused(lambda: said_of(lambda p: plain(p, 0.9 if lt.rank() == 1 else 0.0)),
            f"strategy {strategy} with SGD(momentum=0.9)", "give the optimizer momentum=0")
    refused(lambda: said_of(plain, late=0.5), "step 2", "SGD(momentum=0.5)")
    assert not said_of(plain)
    said = said_of(lambda p: optim.Adam(p, 1e-3))
    assert len(said) == 1 and "with Adam" in said[0] and "dgc(momentum=0)" in said[0], said


@use
def several_optimizers():
    """finish() and a step of each are DDP's; step() of each in turn after passes of their own,
    too."""
    def halves(model):
        return (sgd(model[0].parameters()),
                torch.optim.Adam([*model[2].parameters(), *model[4].parameters()], 1e-2))

    def train(wrap, at_once):
        with wrapped(wrap, make=build_for_sums_of_any_order) as (model, dp, _):
            both = halves(model)
            for step in range(6):
                if at_once:
                    backward(dp, step)
                    dp.finish()
                    for opt in both:
                        opt.step()
                else:
                    take_step(dp, both[step % 2], step)
                model.zero_grad()
        return model
    same_as_ddp(lambda wrap: train(wrap, at_once=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_as_ddp(lambda wrap: train(wrap, at_once=False))


@use
def two_scalers():
    """A loss and a scaler for each half of a model, one of which overflows."""
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Mlp(), Mlp()

        def forward(self, x, heads):
            return [(self.a, self.b)[head](x) for head in heads]

    def train(wrap, at_once):
        scalers = [torch.amp.GradScaler("cpu", init_scale=s, growth_interval=2)
                   for s in (1024.0, 64.0)]
        with wrapped(wrap, TwoHeads) as (model, dp, _):
            opts = [sgd_alone(half.parameters()) for half in (model.a, model.b)]
            for step in range(6):
                x, y = rows(step)
                heads = (0, 1) if at_once else (step % 2,)
                losses = [scalers[head].scale(loss_of(out, y))
                          * (float("inf") if head == 1 and step == 3 else 1)
                          for head, out in zip(heads, dp(x, heads))]
                sum(losses).backward()
                if at_once:
                    dp.finish()
                    for scaler, opt in zip(scalers, opts):
                        scaler.step(opt)
                        scaler.update()
                else:
                    dp.step(opts[step % 2], scaler=scalers[step % 2])
                model.zero_grad()
        return [*model.named_parameters(),
                ("scales", torch.tensor([s.get_scale() for s in scalers]))]
    for at_once in (True, False):
        same_as_ddp(lambda wrap: train(wrap, at_once), ddp={"find_unused_parameters": True})


@use
def groups_that_come_between_steps():
    """add_param_group() for layers that thaw."""
    def make(of):
        model = build(of)
        model[4].requires_grad_(False)
        return model

    def step_of(dp, opt, step):
        if step == 3:
            dp.module[4].requires_grad_(True)
            opt.add_param_group({"params": list(dp.module[4].parameters()), "lr": 0.01})
            made_anew(dp)
        take_step(dp, opt, step)
    same_steps_as_ddp(step_of, make=make)


@use
def sparse_gradients_that_only_a_pass_shows():
    class Looked(Mlp):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(24, 10))

        def forward(self, x):
            looked = nn.functional.embedding(x[:, 0].abs().long() % 24, self.table, sparse=True)
            return self[4](self[3](self[2](self[1](self[0](looked)))))

    _, dp, _ = parallel("ddp", Looked)
    backward(dp, 0)
    refused(dp.finish, 'the gradient of "table" is sparse', "without the option sparse",
            kind=lt.Error)


@use
def the_last_wrapper_needs_no_name():
    """Wrappers that a program drops without close(), while updates wait and in the middle of a
    step: nothing hangs, and the next trains."""
    want = trained_by_ddp(steps=2)
    for strategy in STRATEGIES:
        with Stderr(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                model, dp, opt = parallel(strategy)
                OPEN.clear()
                for step in range(2):
                    take_step(dp, opt, step)
                backward(dp, 0)
                weights = named(model)
                dp = None
        require_equal(strategy, weights, want)


@use
def ctrl_c_inside_of_a_backward_pass():
    """Caught, as a notebook does, on ranks that stood at different layers: the step is thrown away
    on all of them, and training goes on."""
    import signal

    def stop(_):
        signal.raise_signal(signal.SIGINT)

    def step_of(dp, opt, step):
        weight = dp.module[4 * (dist.get_rank() % 2)].weight
        hook = weight.register_hook(stop) if step == 2 else None
        try:
            backward(dp, step)
            assert hook is None, "it was not interrupted"
            dp.step(opt)
        except KeyboardInterrupt:
            hook.remove()
            dp.skip_step()

    def uninterrupted(dp, opt, step):  # of DDP such a step cannot be had: it has none
        if step != 2:
            take_step(dp, opt, step)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        same_steps_as(trained_by_ddp(steps=5, step_of=uninterrupted), step_of, steps=5,
                      end=lt.DataParallel.require_same_weights)
    finally:
        signal.signal(signal.SIGINT, before)
