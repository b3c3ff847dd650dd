"""Graphs of an accelerator (torch.cuda.CUDAGraph and its like). A replay calls no operator, so
nobody sees which weights it reads."""
import functools

import torch

from . import _core

_found = False  # a graph, at any time


def _answers(asked):
    try:
        asked()
    except RuntimeError:  # a PyTorch without that device
        return False
    return True


# Found once: torch.compile, which may trace the callers, cannot trace what a PyTorch without the
# device has in their place.
_askers = [module.is_current_stream_capturing
           for module in (torch.cuda, getattr(torch, "xpu", None))
           if hasattr(module, "is_current_stream_capturing")
           and _answers(module.is_current_stream_capturing)]


def _is_capturing():
    return any(asked() for asked in _askers)


def exist():
    """Whether this process has captured a graph, or is about to."""
    global _found
    _found = _found or _is_capturing()
    return _found


def refuse_capture(who):
    """Raises UsageError if the current stream is under capture."""
    if _is_capturing():
        raise _core.UsageError(
            f"{who}: expected no graph under capture, found one in the current stream. A replay "
            "would repeat neither the ranks' messages nor the updates. Capture layers alone "
            "(torch.cuda.make_graphed_callables), and call settle() before")


def _settled(act, settle):
    @functools.wraps(act)
    def settled(graph, *arguments, **options):
        global _found
        _found = True
        settle()
        return act(graph, *arguments, **options)
    return settled


def settle_before_graphs(settle):
    """`settle()` is called before a graph is captured, and before each replay, wherever it was
    captured."""
    for module, name in (("cuda", "CUDAGraph"), ("xpu", "XPUGraph"), ("accelerator", "Graph")):
        graph = getattr(getattr(torch, module, None), name, None)
        for act in ("capture_begin", "replay") if graph is not None else ():
            setattr(graph, act, _settled(getattr(graph, act), settle))
