"""K-FAC for PyTorch's layers."""
import torch
from torch import nn

from . import _core
from ._from_ddp import unknown_options

_NORMS = (nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def _layer(name, module):
    """(name, kind, weight, bias, groups, module), or why no factors are known for it."""
    bias = getattr(module, "bias", None)
    if isinstance(module, nn.Linear):
        return (name, "linear", module.weight, bias, 1, module)
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return (name, "conv", module.weight, bias, module.groups, module)
    if isinstance(module, nn.Embedding):
        if module.sparse or module.scale_grad_by_freq:
            return "its gradients are sparse, or scaled by frequency"
        return (name, "embedding", module.weight, None, 1, module)
    if isinstance(module, _NORMS):
        return (name, "norm", module.weight, bias, 1, module)
    if isinstance(module, nn.MultiheadAttention):
        if module.in_proj_weight is None or module.bias_k is not None:
            return ("queries, keys and values of different widths, or with a bias of keys, are no "
                    "linear layer")
        return (f"{name}.in_proj", "linear", module.in_proj_weight, module.in_proj_bias, 1, module)
    # of transformers, which need not be here
    if type(module).__name__ == "Conv1D" and getattr(module, "nf", None) is not None:
        return (name, "transposed", module.weight, bias, 1, module)
    return "no factors are known for this type of layer"


class KFAC:
    """Kronecker-factored curvature of a model's layers. Call `pre.step(opt)` in place of
    `opt.step()`, on one rank or after another exchange of gradients. Under lt.DataParallel a
    strategy with kfac(...) makes one by itself (`dp.kfac`).

    `loss_average`: the number by which the loss divides its sum: "batch" (mean cross entropy of a
    classifier), "batch_positions" (of a language model), "batch_positions_features" (nn.MSELoss) or
    "sum".
    `accumulate`: backward passes of a step, if each of their losses is divided by their number
    (`loss / n`). Then factors are those of the joined batch. It may also stand in the strategy, as
    "kfac(accumulate=8)". A step with another number of passes gives one warning.
    `skip`: names of layers that are left to the optimizer, with * and ?.
    `scaler`: the torch.amp.GradScaler that scales the loss, if there is one. Factors are those of
    the unscaled loss.
    """

    def __init__(self, model, strategy="kfac", *, loss_average="batch", accumulate=None, skip=(),
                 seed=0, scaler=None, _shared=False, **others):
        if others:
            raise TypeError(unknown_options(others, "KFAC"))
        if accumulate is not None and not (hasattr(accumulate, "__index__") and accumulate >= 1):
            raise _core.UsageError("KFAC: accumulate=: expected the number of backward passes of a "
                                   f"step, 1 or more, found {accumulate!r}")
        text = strategy if "+" in strategy else f"ddp+{strategy}"
        found, self._left = [], []
        for name, module in model.named_modules():
            if next(module.parameters(recurse=False), None) is None:
                continue
            layer = _layer(name or "(model)", module)
            if isinstance(layer, str):
                self._left.append((name or "(model)", type(module).__name__, 0, 0, layer))
            else:
                found.append(layer)
        self._scaler = scaler
        self._core = _core.Kfac(found, list(model.parameters()), text, loss_average, list(skip),
                                seed, None if scaler is None else scaler.get_scale, accumulate,
                                _shared)

    def layers(self):
        """(name, kind, dimension of A, of G, why it is left to the optimizer or "") of every layer
        with parameters."""
        return self._core.layers() + self._left

    def set_loss_terms(self, terms):
        """Between forward and backward: the number of terms of the loss, if dimension 0 of the
        first layer's input is not it."""
        self._core.set_loss_terms(float(terms))

    def loss_of(self, output, target=None, ignore_index=-100, *, layout=None):
        """Between forward and backward: what the loss is computed from, if it is averaged over
        positions or some targets do not count.

        `output`: [N, C], [B, T, V] or [N, C, positions...]; which of these follows from the shape
        of `target`, classes [N], [B, T] or [N, positions...], flat or not. If both fit, or there is
        no target of classes, say layout="classes_last" of [B, T, V], layout="classes_second" of [N,
        C, positions...]; UsageError if that is needed. Targets that are `ignore_index` do not
        count, in the number of terms and in A. Give the targets of every batch, or of none. On
        several ranks dp.set_batch(number of those that count) weighs the gradients alike.
        """
        self._core.loss_of(output, target, int(ignore_index), layout)

    def sample_fisher(self, output, loss, first_sample=0, *, layout=None):
        """With fisher=mc, between forward and backward: a backward pass with labels drawn from the
        model, which G is then made of. `loss`: "softmax_cross_entropy", "binary_cross_entropy"
        (with logits), "squared_error" or "half_squared_error"; `layout` as in loss_of(), which
        comes before if some targets do not count; `first_sample`: this rank's first among those of
        all ranks, so that no two draw alike."""
        if (loss == "softmax_cross_entropy" and output.dim() > 2
            and layout not in ("classes_last", "classes_second")):
            raise _core.UsageError(
                f"KFAC: sample_fisher(): the output {list(output.shape)} may have its classes "
                "last, [B, T, V], or second, [N, C, positions...]: say layout=\"classes_last\" or "
                "layout=\"classes_second\"")
        self._core.sample_fisher(output.movedim(-1, 1) if layout == "classes_last"
                                 and output.dim() > 2 else output, loss, first_sample)

    def take_rate(self, optimizer):
        self._core.set_rate(float(optimizer.param_groups[0]["lr"]))

    def _require(self, scaler, where):
        if scaler is not self._scaler:
            raise _core.UsageError(
                f"{where}.step: K-FAC has to know the loss's scale in the backward pass: give the "
                f"constructor, {where}(...), the same scaler= as step()")

    def step(self, optimizer, *, scaler=None):
        """Preconditions the gradients and steps the optimizer; `scaler` is stepped and updated,
        too. What it did: KfacStep."""
        self.take_rate(optimizer)
        self._require(scaler, "KFAC")
        if scaler is not None:
            scaler.unscale_(optimizer)
        done = self._core.step()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        return done

    def state_dict(self):
        """Averages of factors and what belongs to them, by name: of one rank, or of what this rank
        owns."""
        return dict(self._core.state())

    def __reduce_ex__(self, protocol):
        raise _core.UsageError(
            "KFAC: it cannot be copied or pickled, since it watches its model: save state_dict()")

    def load_state_dict(self, state):
        self._core.load_state(list(state.items()))
