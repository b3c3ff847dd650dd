"""Compression for those who stay with DistributedDataParallel: a communication hook."""
import queue
import threading
import warnings

import torch

from . import _core, _scaling, _world


_PART = "8MiB"  # of gradients


def _inside(strategy):
    """How each of DDP's buckets is exchanged. Without a compressor in parts, one message each: a
    part is cast while the one before it travels, and DDP's next bucket waits for the casts of one
    part alone."""
    exchange, *more = strategy.split("+")
    name, _, options = exchange.strip().partition("(")
    if more or name not in ("ddp", "bulk"):
        return strategy if more else f"bulk+{strategy}"
    if name == "ddp":
        return strategy
    wire = options.rstrip(") ")
    return f"ddp(first={_PART},bucket={_PART}{',' + wire if wire else ''})"


class _Bucket:
    """A bucket's gradients as parameters of an exchange of their own, whose gradients they are."""

    def __init__(self, world, strategy, index, names, gradients):
        self._leaves = [torch.zeros_like(g).requires_grad_() for g in gradients]
        self._core = _core.Parallel(list(zip(names, self._leaves)), [], world, strategy,
                                    buffer_policy="keep", replan_above=float("inf"),
                                    most_above_ddp=float("inf"), name=f"bucket {index}")

    def exchange(self, gradients, scale):
        """The means, which are memory of the exchange until the next one; None if the step is not
        to count."""
        for leaf, gradient in zip(self._leaves, gradients):
            leaf.grad = gradient  # in place of a backward pass, which would copy it
        self._core.set_loss_scale(scale)
        report = self._core.finish()
        means = None if report.infinite else [leaf.grad for leaf in self._leaves]
        for leaf in self._leaves:
            leaf.grad = None
        return means

    def close(self):
        self._core.close()


class HookState:
    """What the hook of one DistributedDataParallel remembers. Exchanges run on a thread, in the
    order of DDP's buckets; another one copies what has come to where DDP reads it, while the next
    bucket travels."""

    def __init__(self, strategy, process_group):
        self._strategy = _inside(strategy)
        self._group, self._world = process_group, None
        self._buckets, self._layouts, self._names = {}, {}, {}
        self._jobs, self._arrived = queue.SimpleQueue(), queue.SimpleQueue()
        self._threads = []
        self.keeps_units = _core.compresses(self._strategy)
        self._scaler = 0  # the number of the last that a backward pass had
        _world.keep(self)

    def start(self, bucket):
        if not self._threads:
            self._world = _world.world_of(self._group)
            self._threads = [threading.Thread(target=work, daemon=True)
                             for work in (self._exchange_all, self._deliver_all)]
            for thread in self._threads:
                thread.start()
        result = torch.futures.Future()
        self._jobs.put((bucket.index(), bucket.buffer(), list(bucket.gradients()),
                        list(bucket.parameters()), self._scale(), result))
        return result

    def _scale(self):
        """That of this backward pass; of one without a scaler, that which the last one has now."""
        scale, number = _scaling.pass_at_hand()
        if scale is not None:
            if self.keeps_units and not self._scaler:
                warnings.warn(
                    "ddp_hook: a GradScaler skips whole steps, and this hook hears of single "
                    "buckets: if a gradient overflows, the other buckets' compressors have sent "
                    "theirs, which the skipped step loses. lt.DataParallel takes back all of it")
            self._scaler = number
            return scale
        scaler = _scaling.scaler_of(self._scaler)
        return scaler.get_scale() if _scaling.is_scaling(scaler) else None

    def forget_cleared_scale(self):
        pass  # each bucket comes once, in the pass that exchanges it

    def _exchange_all(self):
        while (job := self._jobs.get()) is not None:
            index, buffer, gradients, parameters, scale, result = job
            try:
                self._arrived.put((buffer, gradients,
                                   self._exchange(index, gradients, parameters, scale), result))
            except Exception as error:  # backward() raises it
                result.set_exception(error)
        self._arrived.put(None)

    def _deliver_all(self):
        while (job := self._arrived.get()) is not None:
            buffer, gradients, means, result = job
            try:
                if means is None:
                    buffer.fill_(float("nan"))  # a scaler has to see it
                else:
                    torch._foreach_copy_(gradients, means)
                result.set_result(buffer)
            except Exception as error:
                result.set_exception(error)

    def _exchange(self, index, gradients, parameters, scale):
        layout = [id(p) for p in parameters]
        if self._layouts.get(index) != layout:
            # DDP makes its buckets anew after its first step. That one travels as it is, as what
            # compressors owed would be lost.
            first = index not in self._buckets and "+" in self._strategy
            layout = None if first else layout
            names = [self._names.setdefault(id(p), f"parameter {len(self._names)}")
                     for p in parameters]
            if index in self._buckets:
                self._buckets.pop(index).close()
            self._buckets[index] = _Bucket(self._world, "bulk" if first else self._strategy, index,
                                           names, gradients)
            self._layouts[index] = layout
        return self._buckets[index].exchange(gradients, scale)

    def close(self):
        if self._threads:
            self._jobs.put(None)
            for thread in self._threads:
                thread.join()
            self._threads = []
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()


def ddp_hook(strategy, process_group=None):
    """(state, hook) for DistributedDataParallel.register_comm_hook: gradients are exchanged with
    linerate's compressors, such as "powersgd(rank=4)" or "topk(density=0.01)", or in another type,
    "bulk(wire=fp16)". Call lt.init() first.

    What is kept between steps is in units of the loss: the hook takes the scale of a loss that
    torch.amp.GradScaler.scale() has scaled. It cannot know another way to scale a loss, and not
    whether the step counts: a bucket whose gradients overflow on some rank is NaN on all and keeps
    nothing of the step, but the other buckets' compressors have sent theirs, which a step that the
    scaler skips loses. The first step travels as it is, since DDP makes its buckets anew after
    it."""
    return HookState(strategy, process_group), _hook


def _hook(state: HookState,
          bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return state.start(bucket)
