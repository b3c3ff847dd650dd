"""What torch.amp.GradScaler multiplies losses by, for exchanges, which send gradients before
anybody unscales them."""
import functools
import itertools
import weakref

import torch

from . import _core, _world

_numbers = weakref.WeakKeyDictionary()  # by scaler
_scalers = weakref.WeakValueDictionary()  # by number
_count = itertools.count(1)
# the scale of the scaled backward pass that is under way, and its scaler's number
_pass = (None, 0)


def is_scaling(scaler):
    """Whether it multiplies losses: not None, and enabled."""
    return scaler is not None and getattr(scaler, "is_enabled", lambda: True)()


def scaler_of(number):
    """The one of that number, if it is still there."""
    return _scalers.get(number)


def pass_at_hand():
    """(scale, number of the scaler); (None, 0) outside of scaled backward passes."""
    return _pass


def _number_of(scaler):
    if scaler not in _numbers:
        _numbers[scaler] = next(_count)
        _scalers[_numbers[scaler]] = scaler
    return _numbers[scaler]


def _say(scale, number):
    global _pass
    _pass = (scale, number)
    _core.set_scaled_pass(scale, number)


def _end():
    _say(None, 0)


def _begin_of(scale, number):
    """The hook of a scaled loss, the first thing that its backward pass runs."""
    def begin(_):
        for one in _world.kept_all():
            one.forget_cleared_scale()
        _say(scale, number)
        torch.autograd.Variable._execution_engine.queue_callback(_end)
    return begin


def _hooked(scaled, begin):
    """What GradScaler.scale() returns, of whatever kind it is."""
    if isinstance(scaled, torch.Tensor):
        if scaled.requires_grad:
            scaled.register_hook(begin)
        return scaled
    if isinstance(scaled, (list, tuple)):
        for one in scaled:
            _hooked(one, begin)
        return scaled
    return (_hooked(one, begin) for one in scaled)


def _watched(scale):
    @functools.wraps(scale)
    def watched(self, outputs):
        scaled = scale(self, outputs)
        if torch.compiler.is_compiling() or not self.is_enabled():
            return scaled
        exchanges = _world.kept_all()
        if not exchanges:
            return scaled
        # On a device this waits for the number: only where something is kept in units of the loss.
        # That there is a scaler is enough elsewhere.
        number = self.get_scale() if any(one.keeps_units for one in exchanges) else 1.0
        return _hooked(scaled, _begin_of(number, _number_of(self)))
    watched.linerate_watches = True
    return watched


def watch():
    """From now on scaled backward passes say their scale. Once a process."""
    if not getattr(torch.amp.GradScaler.scale, "linerate_watches", False):
        torch.amp.GradScaler.scale = _watched(torch.amp.GradScaler.scale)
