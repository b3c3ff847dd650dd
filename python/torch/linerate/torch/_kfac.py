"""K-FAC for PyTorch's layers."""
from torch import nn

from . import _core

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
            return "queries, keys and values of different widths, or with a bias of keys, are no linear layer"
        return (f"{name}.in_proj", "linear", module.in_proj_weight, module.in_proj_bias, 1, module)
    if type(module).__name__ == "Conv1D" and getattr(module, "nf", None) is not None:  # of transformers, which need not be here
        return (name, "transposed", module.weight, bias, 1, module)
    return "no factors are known for this type of layer"


class KFAC:
    """Kronecker-factored curvature of a model's layers: `pre.step(opt)` in place of `opt.step()`, on one rank or after another
    exchange of gradients. Under lt.DataParallel a strategy with kfac(...) makes one by itself (`dp.kfac`).

    `loss_average`: what the loss divides its sum by: "batch" (mean cross entropy of a classifier), "batch_positions" (of a
    language model), "batch_positions_features" (nn.MSELoss), "sum". `skip`: names of layers left to the optimizer, with * and ?.
    `scaler`: the torch.amp.GradScaler that scales the loss, if one does: factors are the unscaled loss's.
    """

    def __init__(self, model, strategy="kfac", *, loss_average="batch", skip=(), seed=0, scaler=None, _shared=False):
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
        self._core = _core.Kfac(found, list(model.parameters()), text, loss_average, list(skip), seed,
                                None if scaler is None else scaler.get_scale, _shared)

    def layers(self):
        """(name, kind, dimension of A, of G, why it is left to the optimizer or "") of every layer with parameters."""
        return self._core.layers() + self._left

    def set_loss_terms(self, terms):
        """Between forward and backward: the number of terms of the loss, if dimension 0 of the first layer's input is not it."""
        self._core.set_loss_terms(float(terms))

    def loss_of(self, output):
        """Between forward and backward: what the loss is computed from, if it is averaged over positions."""
        self._core.loss_of(output)

    def take_rate(self, optimizer):
        self._core.set_rate(float(optimizer.param_groups[0]["lr"]))

    def _require(self, scaler, where):
        if scaler is not self._scaler:
            raise _core.UsageError(f"{where}.step: K-FAC has to know the loss's scale in the backward pass: give the constructor, "
                                   f"{where}(...), the same scaler= as step()")

    def step(self, optimizer, *, scaler=None):
        """Preconditions the gradients and steps the optimizer; `scaler` is stepped and updated, too. What it did: KfacStep."""
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
        """Averages of factors and what belongs to them, by name: of one rank, or of what this rank owns."""
        return dict(self._core.state())

    def load_state_dict(self, state):
        self._core.load_state(list(state.items()))
