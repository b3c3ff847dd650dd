"""Compression for those who stay with DistributedDataParallel: a communication hook."""
import queue
import threading

import torch

from . import _core, _world


class _Bucket:
    """A bucket's gradients as parameters of an exchange of their own, whose gradients they are."""

    def __init__(self, world, strategy, index, names, gradients):
        self._leaves = [torch.zeros_like(g).requires_grad_() for g in gradients]
        self._core = _core.Parallel(list(zip(names, self._leaves)), [], world, strategy, "keep", None, 5, float("inf"), float("inf"), 0,
                                    f"bucket {index}", False, None, "")

    def exchange(self, gradients):
        torch.autograd.backward(self._leaves, gradients)
        report = self._core.finish()
        for leaf, gradient in zip(self._leaves, gradients):
            if report.infinite:
                gradient.fill_(float("nan"))  # a scaler has to see it
            else:
                gradient.copy_(leaf.grad)
            leaf.grad = None

    def close(self):
        self._core.close()


class HookState:
    """What the hook of one DistributedDataParallel remembers. Exchanges run on a thread, in the order of DDP's buckets."""

    def __init__(self, strategy, process_group):
        self._strategy = strategy if "+" in strategy or strategy.split("(")[0] in ("ddp", "bulk") else f"bulk+{strategy}"
        self._group, self._world = process_group, None
        self._buckets, self._layouts, self._names = {}, {}, {}
        self._jobs = queue.SimpleQueue()
        self._thread = None
        _world.keep(self)

    def start(self, bucket):
        if self._thread is None:
            self._world = _world.world_of(self._group)
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        result = torch.futures.Future()
        self._jobs.put((bucket.index(), bucket.buffer(), list(bucket.gradients()), list(bucket.parameters()), result))
        return result

    def _work(self):
        while (job := self._jobs.get()) is not None:
            index, buffer, gradients, parameters, result = job
            try:
                self._exchange(index, gradients, parameters)
                result.set_result(buffer)
            except Exception as error:  # backward() raises it
                result.set_exception(error)

    def _exchange(self, index, gradients, parameters):
        layout = [id(p) for p in parameters]
        if self._layouts.get(index) != layout:
            # DDP makes its buckets anew once: residuals of the first ones, one step old, are dropped.
            names = [self._names.setdefault(id(p), f"parameter {len(self._names)}") for p in parameters]
            if index in self._buckets:
                self._buckets.pop(index).close()
            self._buckets[index] = _Bucket(self._world, self._strategy, index, names, gradients)
            self._layouts[index] = layout
        self._buckets[index].exchange(gradients)

    def close(self):
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()


def ddp_hook(strategy, process_group=None):
    """(state, hook) for DistributedDataParallel.register_comm_hook: gradients are exchanged with linerate's compressors, such
    as "powersgd(rank=4)" or "topk(density=0.01)". Call lt.init() first."""
    return HookState(strategy, process_group), _hook


def _hook(state: HookState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return state.start(bucket)
