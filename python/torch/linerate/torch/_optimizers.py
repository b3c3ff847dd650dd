"""Steps of Python's optimizers, taken apart: parameters are updated when their gradients arrive."""
import torch

from . import _core

# They treat each parameter by itself. All others (LBFGS, SparseAdam, classes derived from these)
# are stepped as a whole, when all gradients are there: the result is the same, dear's overlap with
# the next forward pass is lost.
_BY_PARAMETER = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam",
                 "RMSprop", "Rprop", "ASGD", "Adafactor", "Muon")


_ADAMS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam,
          torch.optim.RAdam)
# keys of groups whose steps are divided by a second moment or the like
_DIVIDES = ("betas", "eps", "alpha")
_MOMENTS = ("exp_avg", "momentum_buffer")  # in the state of optimizers of others


def _above_zero(value):
    return isinstance(value, (int, float, torch.Tensor)) and float(value) > 0


def _is_sum(group, optimizer):
    """Whether a momentum adds gradients up, as SGD's does."""
    return (isinstance(optimizer, torch.optim.SGD) or "dampening" in group
            or not any(key in group for key in _DIVIDES))


def _averages(group):
    first = group.get("beta1", (group.get("betas") or (0,))[0])
    return _above_zero(group.get("momentum")) or _above_zero(first)


def _steps_by(optimizer, groups):
    """(StepsBy, momentum) of an optimizer as its groups are now: they may have changed since the
    last step."""
    inner = getattr(optimizer, "optimizer", optimizer)  # Accelerate's is around another
    for group in groups:
        if _above_zero(group.get("momentum")) and _is_sum(group, inner):
            return _core.StepsBy.sum, group["momentum"]
    if isinstance(inner, _ADAMS):
        return _core.StepsBy.adams, 0
    if any(_averages(group) for group in groups):
        return _core.StepsBy.average, 0
    state = getattr(inner, "state", None)
    if not type(inner).__module__.startswith("torch.optim") and isinstance(state, dict):
        kept = next(iter(state.values()), None)
        if isinstance(kept, dict) and any(key in kept for key in _MOMENTS):
            return _core.StepsBy.average, 0
    return _core.StepsBy.gradients, 0


def described(optimizer):
    """What the exchange has to know of an optimizer that is stepped after it: name, identity,
    parameters, what it steps by."""
    groups = getattr(optimizer, "param_groups", ())
    by, momentum = _steps_by(optimizer, groups)
    name = type(optimizer).__name__
    return (f"{name}(momentum={float(momentum):g})" if momentum else name, id(optimizer),
            [p for g in groups for p in g["params"]], by)


def is_unscaled(scaler, optimizer):
    """Whether scaler.unscale_(optimizer) was called in this step. PyTorch tells nobody but by its
    own notes."""
    state = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer))
    return state is not None and getattr(state.get("stage"), "name", "") == "UNSCALED"


def steps_by_parameter(optimizer):
    """Whether dear can update each weight just before it is used."""
    if type(optimizer) not in {getattr(torch.optim, name, None) for name in _BY_PARAMETER}:
        return False
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return False
    replaced = vars(optimizer).get("step")  # LR schedulers put a step there that counts its calls
    return replaced is None or getattr(replaced, "_wrapped_by_lr_sched", False)


def _captured(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


class PartialStep:
    """One step of an optimizer with the options that it has now. The optimizer itself is stepped,
    with the groups of one part at a time, so that its state is its own."""

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self._step = type(optimizer).step
        # profile_hook_step: runs hooks, of which there are none
        if getattr(self._step, "hooked", False):
            self._step = self._step.__wrapped__

    def capture(self, parts):
        opt = self._optimizer
        if "step" in vars(opt):
            opt._opt_called = True  # what a scheduler's wrapper notes
        part_of = {id(p): index for index, part in enumerate(parts) for p in part}
        self._parts = parts
        self._shares = [[] for _ in parts]  # of each part: (group, parameter)
        self._options = []  # of each group
        rest = {}
        for number, group in enumerate(opt.param_groups):
            self._options.append({k: _captured(v) for k, v in group.items() if k != "params"})
            for p in group["params"]:
                index = part_of.get(id(p))
                if index is not None:
                    self._shares[index].append((number, p))
                elif p.grad is not None:
                    rest.setdefault(number, []).append(p)
        if rest:
            self._run(self._groups(rest))

    def _groups(self, parameters_of):
        return [{**self._options[number], "params": parameters}
                for number, parameters in parameters_of.items()]

    def _run(self, groups):
        opt = self._optimizer
        whole, opt.param_groups = opt.param_groups, groups
        try:
            with torch.no_grad():
                self._step(opt)
        finally:
            opt.param_groups = whole

    def update(self, which, gradients):
        """`which`: parts; gradients[i][k]: of the k-th parameter of the i-th of them. In one step,
        whose way through Python is 10 µs long."""
        inside, before = {}, []
        for index, of_part in zip(which, gradients):
            for number, p in self._shares[index]:
                inside.setdefault(number, []).append(p)
            for p, g in zip(self._parts[index], of_part):
                before.append((p, p.grad))
                p.grad = g
        try:
            if inside:
                self._run(self._groups(inside))
        finally:
            for p, g in before:
                p.grad = g

    def release(self):
        self._parts = self._shares = self._options = []
