"""What users do in a training loop, each against DDP or against one rank with every rank's batches: part of uses.py, which runs it."""
import warnings

import torch
import torch.distributed as dist
from torch import nn

import linerate.torch as lt
from uses import (KEEPS, STRATEGIES, Branches, Mlp, Net, Stderr, TorchDDP, build, build_for_sums_of_any_order, images, loop, loss_of, refused, require_equal, rows,
                  rows_like, same_as_ddp, same_steps_as_ddp, sgd, use)


def mean_of_ranks(grads_of, steps=4):
    """Trains one model by the mean of grads_of(model, step, rank) over the ranks."""
    model = build(Mlp)
    opt = sgd(model.parameters())
    for step in range(steps):
        every = [grads_of(model, step, r) for r in range(dist.get_world_size())]
        for p, grads in zip(model.parameters(), zip(*every)):
            given = [g for g in grads if g is not None]
            p.grad = sum(given) / dist.get_world_size() if given else None
        opt.step()
    return model


@use
def gradients_that_the_program_writes():
    """From autograd.grad() and torch.func: what stands in .grad is exchanged, whoever put it there, as far as it is there."""
    from torch.func import functional_call, grad

    def by_autograd(model, step, rank):
        x, y = rows(step, rank)
        return torch.autograd.grad(loss_of(model(x), y), list(model.parameters()))

    def by_func(model, step, rank):
        x, y = rows(step, rank)
        weights = {n: p.detach() for n, p in model.named_parameters()}
        return list(grad(lambda w: loss_of(functional_call(model, w, (x,)), y))(weights).values())

    def by_rank(model, step, rank):  # some of them, on some ranks
        return [g if (k + step + rank) % 2 else None for k, g in enumerate(by_autograd(model, step, rank))]

    for grads_of in (by_autograd, by_func, by_rank):
        want = mean_of_ranks(grads_of)
        for strategy in STRATEGIES:
            model = build(Mlp)
            dp = lt.DataParallel(model, strategy=strategy, most_above_ddp=KEEPS)
            opt = sgd(model.parameters())
            with Stderr() as said:
                for step in range(4):
                    for p, g in zip(model.parameters(), grads_of(model, step, dist.get_rank())):
                        p.grad = g
                    dp.step(opt)
                dp.settle()
            assert "without a backward pass" not in said.text, said.text
            require_equal(f"{grads_of.__name__}, {strategy}", list(model.named_parameters()), list(want.named_parameters()), exact=False)
            dp.require_same_weights()
            dp.close()


@use
def gradients_replaced_and_removed():
    """After backward(), on one rank: what stands there at the step counts."""
    def changed(grads, rank):
        grads = list(grads)
        if rank == 1:
            grads[0], grads[3] = None, torch.ones_like(grads[3])
        return grads

    def grads_of(model, step, rank):
        x, y = rows(step, rank)
        return changed(torch.autograd.grad(loss_of(model(x), y), list(model.parameters())), rank)

    want = mean_of_ranks(grads_of)
    for strategy in STRATEGIES:
        model = build(Mlp)
        dp = lt.DataParallel(model, strategy=strategy, most_above_ddp=KEEPS)
        opt = sgd(model.parameters())
        with Stderr():  # that it is exchanged twice
            for step in range(4):
                x, y = rows(step)
                loss_of(dp(x), y).backward()
                for p, g in zip(model.parameters(), changed([p.grad for p in model.parameters()], dist.get_rank())):
                    p.grad = g
                dp.step(opt)
            dp.settle()
        require_equal(strategy, list(model.named_parameters()), list(want.named_parameters()), exact=False)
        dp.close()


@use
def gradient_penalty():
    """The second derivative of the output by the input, in the loss."""
    def step_of(dp, model, opt, step):
        x, y = rows(step)
        x.requires_grad_()
        out = dp(x)
        slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
        (loss_of(out, y) + (slope.norm(dim=1) - 1).square().mean()).backward()
        dp.step(opt)
    same_steps_as_ddp(step_of)


@use
def graph_that_is_kept():
    """Two backward passes through one graph, the first without an exchange."""
    def twice(model, step, rank):
        x, y = rows(step, rank)
        return [2 * g for g in torch.autograd.grad(loss_of(model(x), y), list(model.parameters()))]

    want = mean_of_ranks(twice)
    for strategy in STRATEGIES:
        model = build(Mlp)
        dp = lt.DataParallel(model, strategy=strategy, most_above_ddp=KEEPS)
        opt = sgd(model.parameters())
        for step in range(4):
            x, y = rows(step)
            loss = loss_of(dp(x), y)
            with dp.no_sync():
                loss.backward(retain_graph=True)
            loss.backward()
            dp.step(opt)
        dp.settle()
        require_equal(strategy, list(model.named_parameters()), list(want.named_parameters()), exact=False)
        dp.close()


@use
def gradients_cleared_to_zeros():
    def step_of(dp, model, opt, step):
        opt.zero_grad(set_to_none=False)
        x, y = rows(step)
        loss_of(dp(x), y).backward()
        dp.finish()
        opt.step()
    same_steps_as_ddp(step_of, Branches, steps=5, ddp={"find_unused_parameters": True})


@use
def optimizers_fused_and_in_lists():
    kinds = (("SGD", {"lr": 0.05, "momentum": 0.9, "foreach": True}), ("SGD", {"lr": 0.05, "momentum": 0.9, "fused": True}),
             ("AdamW", {"lr": 1e-2, "foreach": True}), ("Adam", {"lr": 1e-2, "fused": True}), ("Adam", {"lr": 1e-2, "maximize": True}),
             ("Adam", {"lr": torch.tensor(1e-2)}))
    for name, options in kinds:
        def train(wrap, name=name, options=options):
            model = build_for_sums_of_any_order(Mlp)
            dp = wrap(model)
            opt = getattr(torch.optim, name)(model.parameters(), **options)
            loop(dp, opt, 4, data=lambda step: rows_like(model, step))
            dp.close()
            return model
        same_as_ddp(train, strategies=("ddp", "dear"))


@use
def clipping_with_a_scaler():
    """finish(), then as without ranks; unscale_() before the exchange would judge by this rank's gradients alone."""
    def train(wrap, clips=True):
        model = build_for_sums_of_any_order(Mlp)
        dp = wrap(model)
        opt, scaler = torch.optim.Adam(model.parameters(), 1e-3, fused=True), torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        for step in range(6):
            x, y = rows_like(model, step)
            scaler.scale(loss_of(dp(x), y) * (float("inf") if step == 3 and dist.get_rank() == 1 else 1)).backward()
            if not clips:
                dp.step(opt, scaler=scaler)
                continue
            dp.finish()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        dp.close()
        return [*((n, p.double()) for n, p in model.named_parameters()), ("scale", torch.tensor(scaler.get_scale()))]
    same_as_ddp(train)
    same_as_ddp(lambda wrap: train(wrap, clips=False), strategies=("ddp", "dear"))

    model = build(Mlp)
    dp = lt.DataParallel(model)
    opt, scaler = sgd(model.parameters()), torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(dp(rows(0)[0]), rows(0)[1])).backward()
    scaler.unscale_(opt)
    refused(lambda: dp.step(opt, scaler=scaler), "before they were exchanged: call finish() first")
    dp.finish()
    scaler.step(opt)
    dp.close()


@use
def a_rank_without_a_loss():
    """In the last micro-batch of an accumulation, where DDP would wait for it, and in all of them."""
    size = dist.get_world_size()
    for last_alone in (True, False):
        for strategy in STRATEGIES:
            model, whole = build(Mlp), build(Mlp)
            dp = lt.DataParallel(model, strategy=strategy, most_above_ddp=KEEPS)
            opt, opt_whole = sgd(model.parameters()), sgd(whole.parameters())
            with Stderr():  # that a rank has no backward pass
                for step in range(4):
                    def has(rank, micro):
                        return rank != step % size or (last_alone and micro == 0)
                    with dp.no_sync():
                        if has(dist.get_rank(), 0):
                            loss_of(dp(rows(2 * step)[0]), rows(2 * step)[1]).backward()
                    if has(dist.get_rank(), 1):
                        loss_of(dp(rows(2 * step + 1)[0]), rows(2 * step + 1)[1]).backward()
                    dp.step(opt)
                    for rank in range(size):
                        for micro in (0, 1):
                            if has(rank, micro):
                                x, y = rows(2 * step + micro, rank)
                                (loss_of(whole(x), y) / size).backward()
                    opt_whole.step()
                    opt_whole.zero_grad()
                dp.settle()
            require_equal(strategy, list(model.named_parameters()), list(whole.named_parameters()), exact=False)
            dp.require_same_weights()
            dp.close()


@use
def evaluation_mode_with_gradients():
    """Statistics stand still, weights do not; parameters that are used under no_grad alone are unused."""
    def step_of(dp, model, opt, step):
        x, y = images(step)
        dp.train(step % 2 == 0)
        loss_of(dp(x), y).backward()
        dp.step(opt)
        with torch.no_grad():
            dp(x)
    same_steps_as_ddp(step_of, Net)

    class Probe(Mlp):
        def forward(self, x):
            with torch.no_grad():
                x = self[2](self[1](self[0](x)))
            return self[4](x)

    def probed(wrap):
        model = build(Probe)
        dp = wrap(model)
        loop(dp, sgd(model.parameters()), 4)
        assert model[0].weight.grad is None
        dp.close()
        return model
    same_as_ddp(probed, ddp={"find_unused_parameters": True})


@use
def steps_that_would_be_wrong_are_refused():
    model, other = build(Mlp), build(Mlp)
    dp, second = lt.DataParallel(model), lt.DataParallel(other)
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
    for one in (dp, second):
        loss_of(one(rows(0)[0]), rows(0)[1]).backward()
    refused(lambda: dp.step(both), 'also steps "0.weight" of another DataParallel', "call finish() of both")
    refused(lambda: dp.step([both]), "expected an optimizer, found list")
    refused(lambda: dp.step(both, scaler=torch.amp.GradScaler("cpu"), closure=lambda: None), "closure=")
    second.finish()
    dp.step(both)  # both exchanged
    second._discard()
    for one, net in ((dp, model), (second, other)):
        one.require_same_weights()
        one.close()
    require_equal("joint", list(model.named_parameters()), list(other.named_parameters()), exact=True)

    dp = lt.DataParallel(model, strategy="ddp+onebit-adam")
    loss_of(dp(rows(0)[0]), rows(0)[1]).backward()
    refused(lambda: dp.step(torch.optim.AdamW(model.parameters())), "onebit-adam with AdamW", "sends Adam's first moment")
    dp.step(sgd(model.parameters()))
    with dp.no_sync():
        dp.close()
    pre = lt.DataParallel(model, strategy="ddp + kfac(spd)")  # blanks change nothing
    assert pre.kfac is not None
    pre.close()


@use
def sparse_gradients_that_only_a_pass_shows():
    class Looked(Mlp):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(24, 10))

        def forward(self, x):
            looked = nn.functional.embedding(x[:, 0].abs().long() % 24, self.table, sparse=True)
            return self[4](self[3](self[2](self[1](self[0](looked)))))

    model = build(Looked)
    dp = lt.DataParallel(model)
    loss_of(dp(rows(0)[0]), rows(0)[1]).backward()
    refused(dp.finish, 'the gradient of "table" is sparse', "without the option sparse", kind=lt.Error)
    dp.close()


@use
def the_last_wrapper_needs_no_name():
    """Wrappers that a program drops without close(), while updates wait and in the middle of a step: nothing hangs, and the next trains."""
    want = build(Mlp)
    loop(TorchDDP(want), sgd(want.parameters()), 2)
    for strategy in STRATEGIES:
        with Stderr(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                model = build(Mlp)
                dp = lt.DataParallel(model, strategy=strategy, most_above_ddp=KEEPS)
                opt = sgd(model.parameters())
                for step in range(2):
                    loss_of(dp(rows(step)[0]), rows(step)[1]).backward()
                    dp.step(opt)
                loss_of(dp(rows(0)[0]), rows(0)[1]).backward()
                weights = [(n, p.detach().clone()) for n, p in model.named_parameters()]
                dp = None
        require_equal(strategy, weights, list(want.named_parameters()))


@use
def ctrl_c_inside_of_a_backward_pass():
    """Caught, as a notebook does, on ranks that stood at different layers: the step is thrown away on all of them, and training goes on."""
    import signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    want = build(Mlp)
    ddp, opt = TorchDDP(want), sgd(want.parameters())
    for step in (0, 1, 3, 4):  # of DDP such a step cannot be had: it has none
        x, y = rows(step)
        loss_of(ddp(x), y).backward()
        ddp.step(opt)
    try:
        for strategy in STRATEGIES:
            model = build(Mlp)
            dp = lt.DataParallel(model, strategy=strategy, most_above_ddp=KEEPS)
            opt = sgd(model.parameters())
            for step in range(5):
                x, y = rows(step)
                hook = model[4 * (dist.get_rank() % 2)].weight.register_hook(lambda _: signal.raise_signal(signal.SIGINT)) if step == 2 else None
                try:
                    loss_of(dp(x), y).backward()
                    assert hook is None, "it was not interrupted"
                    dp.step(opt)
                except KeyboardInterrupt:
                    hook.remove()
                    dp.skip_step()
            dp.settle()
            dp.require_same_weights()
            require_equal(strategy, list(model.named_parameters()), list(want.named_parameters()))
            dp.close()
    finally:
        signal.signal(signal.SIGINT, before)
