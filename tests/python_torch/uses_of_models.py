"""What users do to models before and after they wrap them, each against DDP: part of uses.py, which
runs it."""
import copy
import io
import warnings

import torch
import torch.distributed as dist
from torch import nn

import linerate.torch as lt
from uses import (STRATEGIES, Mlp, Net, TorchDDP, backward, buffers_of, build,
                  build_for_sums_of_any_order, images, loop, loss_of, made_anew, named, parallel,
                  refused, require_equal, rows, said_while, same_as_ddp, same_steps_as_ddp, sgd,
                  sgd_alone, take_step, trained, trained_by_ddp, use, use_of_steps, wrapped,
                  wrappers)


def _another_head(model):
    model[4] = nn.Linear(24, 5, dtype=model[0].weight.dtype)


def _one_layer_more(model):
    model.add_module("5", nn.Linear(5, 5, dtype=model[0].weight.dtype))


def _one_parameter_more(model):
    model.scale = nn.Parameter(torch.ones(5, dtype=model[0].weight.dtype))


def _tied(model):
    model[2].weight = nn.Parameter(model[2].weight.detach().clone())
    model[4].bias = None


def _parametrized(model):
    nn.utils.parametrizations.weight_norm(model[0])


def _normed(model):
    model[1] = nn.BatchNorm1d(24, dtype=model[0].weight.dtype)


def _loaded_by_assignment(model):
    model.load_state_dict({k: 0.9 * v if v.is_floating_point() else v.clone()
                           for k, v in model.state_dict().items()}, assign=True)


def _copied(model):
    model[4] = copy.deepcopy(model[4])


class Scaled(Mlp):
    def forward(self, x):
        return super().forward(x) * getattr(self, "scale", 1)


@use
def layers_replaced_added_and_removed():
    """From the next step on what the model is made of is exchanged: as if DDP were made anew."""
    changes = (_another_head, _one_layer_more, _one_parameter_more, _tied, _parametrized, _normed,
               _loaded_by_assignment, _copied, lambda model: model.__delitem__(5))

    def train(wrap):
        seen = []
        with wrapped(wrap, Scaled, build_for_sums_of_any_order, sgd_alone) as (model, dp, opt):
            loop(dp, opt, 3)
            for number, change in enumerate(changes):
                torch.manual_seed(number)
                change(model)
                made_anew(dp)
                dp.train()
                loop(dp, sgd_alone(model.parameters()), 3)
                seen += [(f"{number}: {n}", t) for n, t in named(model)]
        return seen
    assert not said_while(lambda: same_as_ddp(train))
    assert not said_while(lambda: same_as_ddp(train, strategies=("ddp",),
                                              ddp={"find_unused_parameters": True}))


@use
def layers_that_differ_between_ranks_are_an_error_on_every_rank():
    for strategy in (*STRATEGIES, "ddp+topk(density=0.1, dense_below=0)"):
        model, dp, _ = parallel(strategy)

        def step(dp=dp, model=model):
            take_step(dp, sgd_alone(model.parameters()), 0)
        step()
        if lt.rank() == 1:
            model[4] = nn.Linear(24, 7)
        refused(step, "4.weight", "on every rank", kind=lt.CommError)
        refused(lambda: dp.require_same_weights("now"), "4.weight", kind=lt.CommError)
        torch.manual_seed(lt.rank())
        model[4] = nn.Linear(24, 7)
        refused(step, "4.weight", "seed the ranks alike", kind=lt.CommError)
        torch.manual_seed(3)
        model[4] = nn.Linear(24, 7)
        step()
        dp.settle()
        dp.require_same_weights()
        model[4] = nn.LazyLinear(5) if lt.rank() == 1 else nn.Linear(24, 5)  # no forward pass comes
        refused(dp.finish, "no shape yet", kind=lt.InputError)

    model, dp, opt = parallel("ddp+kfac(spd)", opt_of=sgd_alone)
    take_step(dp, opt, 0)
    model[4] = nn.Linear(24, 5)
    backward(dp, 0)
    refused(dp.finish, 'K-FAC preconditions "4"', "wrap the model again")


@use
def what_comes_into_the_model_later_and_is_not_exchanged_is_named():
    """Caches, and parameters of the wrapper: once, by name, at the first step."""
    class Wider(lt.DataParallel):
        pass

    for strategy in STRATEGIES:
        model, dp, _ = parallel(strategy, kind=Wider, name="net")
        assert not said_while(lambda: loop(dp, sgd(model.parameters()), 3))
        model.register_buffer("cache", torch.zeros(2), persistent=False)
        model.register_buffer("late", torch.full((2,), float(lt.rank())))
        dp.scale = nn.Parameter(torch.ones(1))
        said = said_while(lambda: loop(dp, sgd(model.parameters()), 3))
        assert len(said) == 1 and 'parameter "scale" came into the model' in said[0], said
        assert not model.late.any()
        model.register_buffer("more", torch.zeros(2), persistent=False)
        said = said_while(lambda: loop(dp, sgd(model.parameters()), 3))
        assert len(said) == 1 and 'buffer "more" came into' in said[0], said


@use
def a_class_derived_from_the_wrapper():
    class Scaled(lt.DataParallel):
        def __init__(self, module, **options):
            super().__init__(module, **options)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return 2 * super().forward(x)

    class ScaledDDP(TorchDDP):
        def __call__(self, x):
            return 2 * self.dp(x)

    want = trained(ScaledDDP)
    for strategy in STRATEGIES:
        require_equal(strategy, trained(Scaled, strategy=strategy), want)


class Running(nn.Module):
    """Buffers that forward puts others in the place of, as statistics written without in-place
    operators."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(10))
        self.register_buffer("steps", torch.tensor(0))
        self.body = Mlp()

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            self.steps = self.steps + 1
        return self.body(x - self.mean)


@use
def buffers_that_forward_replaces():
    def end(dp):
        dp.eval()
        return [("out", dp(rows(9)[0]).detach()), *buffers_of(dp.module)]
    same_steps_as_ddp(of=Running, end=end)


@use
def weight_norm_and_spectral_norm():
    from torch.nn.utils import parametrizations

    class Normed(Mlp):
        def __init__(self):
            super().__init__()
            parametrizations.weight_norm(self[0])
            parametrizations.spectral_norm(self[2])
            parametrizations.orthogonal(self[4])
    same_steps_as_ddp(of=Normed, make=build_for_sums_of_any_order)


@use
def averaged_models():
    """An EMA, which reads weights while dear's updates wait, and its norms' statistics."""
    utils = torch.optim.swa_utils

    def train(wrap):
        with wrapped(wrap, Net) as (model, dp, opt):
            ema = utils.AveragedModel(model, multi_avg_fn=utils.get_ema_multi_avg_fn(0.8))
            swa = utils.AveragedModel(model)
            for step in range(6):
                take_step(dp, opt, step)
                ema.update_parameters(model)
                if step % 2:
                    swa.update_parameters(dp.module)
            utils.update_bn([images(s, 0)[0] for s in range(2)], swa)
        return [*ema.named_parameters(), *((n, b.double()) for n, b in swa.state_dict().items())]
    same_as_ddp(train)


class Adapted(nn.Module):
    """A frozen base, a part of it in eight bits, with a trained part of low rank (LoRA)."""

    def __init__(self):
        super().__init__()
        self.base = Mlp().requires_grad_(False)
        self.eighth = nn.Parameter(torch.randint(-128, 127, (10, 5), dtype=torch.int8),
                                   requires_grad=False)
        self.down, self.up = (nn.ParameterList([torch.randn(10, 2), torch.randn(24, 2)]),
                              nn.ParameterDict({"up": torch.zeros(2, 5)}))

    def forward(self, x):
        hidden = x
        for layer in list(self.base)[:4]:
            hidden = layer(hidden)
        return (self.base[4](hidden) + (x @ self.down[0] + hidden @ self.down[1]) @ self.up["up"]
                + x @ (self.eighth.float() / 128))


@use
def frozen_base_with_adapters():
    def make(of):
        model = build(of)
        if dist.get_rank() == 1:
            model.eighth.data.zero_()  # rank 0's is on every rank
        return model
    same_as_ddp(lambda wrap: [(n, p.double()) for n, p in trained(wrap, of=Adapted, make=make)])


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 5))
        for _ in range(150):
            self.body = nn.Sequential(self.body)
        self.more = nn.ModuleDict({"drop": nn.Dropout(0.3)})

    def forward(self, x):
        return self.more["drop"](self.body(x))


@use
def deep_modules_and_dropout():
    """Nothing of linerate's draws from PyTorch's generator: the masks are DDP's."""
    def opt_of(parameters):
        torch.manual_seed(5 + dist.get_rank())
        return sgd(parameters)
    same_steps_as_ddp(of=Deep, opt_of=opt_of)


@use_of_steps()
def functional_calls(dp, opt, step):
    from torch.func import functional_call
    take_step(dp, opt, step)
    # Weights that wait for their update are read in a transform, and as values that are handed
    # over.
    model, (x, _) = dp.module, rows(step)
    weights = dict(model.named_parameters())
    if step % 2:
        return torch.func.grad(lambda w: functional_call(model, w, (x,)).sum())(weights).items()
    return [(f"step {step}", functional_call(model, weights, (x,)).detach())]


@use_of_steps(steps=4)
def whole_models_are_saved_while_updates_wait(dp, opt, step):
    """torch.save reads memory past PyTorch's operators."""
    take_step(dp, opt, step)
    file = io.BytesIO()
    torch.save(dp.module if step % 2 else list(dp.module.parameters()), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    return [(f"step {step}", p) for p in (loaded.parameters() if step % 2 else loaded)]


@use
def compiled_in_place():
    def train(wrap):
        torch._dynamo.reset()

        def compiled(model):
            dp = wrap(model)
            (dp.dp if isinstance(dp, TorchDDP) else dp).compile(backend="aot_eager")
            return dp
        return trained(compiled, steps=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_as_ddp(train, strategies=("ddp", "dear"))


@use_of_steps(steps=4, opt_of=sgd_alone)
def flattened_and_scattered_weights(dp, opt, step):
    """vector_to_parameters() puts every weight into one piece of memory."""
    from torch.nn.utils import parameters_to_vector, vector_to_parameters
    take_step(dp, opt, step)
    parameters = list(dp.module.parameters())
    vector_to_parameters(parameters_to_vector(parameters) * 0.99, parameters)
    made_anew(dp)


@use
def two_wrappers_of_one_model():
    """The later one alone is used, and the first is forgotten by name or by close(); both in turn
    is an error that says so."""
    want = trained_by_ddp()
    for strategy, wrap in wrappers():
        model = build(Mlp)
        dp, opt = wrap(model), sgd(model.parameters())
        for step in range(4):
            if step == 2:
                dp = wrap(model)
            take_step(dp, opt, step)
        dp.settle()
        require_equal(strategy, named(model), want)
        dp.close()


@use_of_steps(steps=4)
def hooks_that_come_and_go(dp, opt, step):
    model, (x, y) = dp.module, rows(step)
    hooks = [p.register_post_accumulate_grad_hook(lambda p: None) for p in model.parameters()]
    hooks += [p.register_hook(lambda g: 2 * g) for p in model.parameters()]
    hooks += [model.register_full_backward_hook(lambda *_: None)]
    loss_of(dp(x.requires_grad_()), y).backward()
    for hook in hooks:
        hook.remove()
    dp.step(opt)


@use
def a_problem_of_one_rank_is_every_ranks():
    """Models and options that differ, found in Python: none waits for the other."""
    sparse = nn.Sequential(nn.Embedding(9, 4, sparse=lt.rank() == 1))
    refused(lambda: lt.DataParallel(sparse), 'rank 1: layer "0" makes sparse gradients')
    refused(lambda: lt.DataParallel(nn.Linear(4, 5 if lt.rank() == 1 else 4)), "rank 0 has",
            "rank 1 has", kind=lt.CommError)
    refused(lambda: lt.DataParallel(build(Mlp), record=lt.rank()), "DataParallel: options",
            "record=", kind=lt.Error)
    refused(lambda: lt.DataParallel(build(Mlp), "ddp+kfac(spd)", skip=["0"][:lt.rank()]),
            "DataParallel: options", "skip=", kind=lt.Error)
