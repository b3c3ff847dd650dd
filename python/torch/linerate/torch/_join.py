"""Uneven inputs: ranks that have run out of batches take part in the others' steps."""
class Join:
    """`with dp.join(): ...`. A rank says before the first forward pass of each step that it is
    still there."""

    def __init__(self, parallel, divide_by_initial_world_size):
        self._dp, self._by_initial = parallel, divide_by_initial_world_size
        self._announced = -1
        self._present = [1] * parallel._world.size

    def __enter__(self):
        self._dp._join = self
        return self._dp

    def announce(self):
        """The ranks that are still there, once a step."""
        dp = self._dp
        if self._announced == dp._steps:
            return
        self._announced = dp._steps
        self._count(1)
        if not self._by_initial:
            dp.set_batch(1)

    def _count(self, here):
        world = self._dp._world
        flags = [0] * world.size
        flags[world.rank] = here
        present = world.sum(flags, f"join, step {self._dp._steps}")
        if any(present):
            self._present = present
        return any(present)

    def __exit__(self, kind, error, trace):
        dp = self._dp
        dp._join = None
        if kind is not None:
            return False
        while self._count(0):
            if not self._by_initial:
                dp.set_batch(0)
            dp._core.expect_no_backward()
            dp.finish()
            dp._discard()
        dp.settle()
        root = self._present.index(1)
        for name, tensor in list(dp.module.named_parameters()) + list(dp.module.named_buffers()):
            dp._world.broadcast(tensor.detach(), root, f"join: {name}")
        return False
