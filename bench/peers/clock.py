"""Seconds of steps: of the host, and on a device by events in the stream that computes, so that
nothing waits between steps."""
import time

import torch


class Clock:
    """mark() where steps begin and end; then seconds() and processor_seconds() between the
    marks."""

    def __init__(self, device):
        self.on_device = device.type != "cpu"
        self.marks = []

    def mark(self):
        processor = time.process_time()
        if self.on_device:
            now = torch.cuda.Event(enable_timing=True)
            now.record()
        else:
            now = time.perf_counter()
        self.marks.append((now, processor))

    def seconds(self):
        """The device has to have come to the last mark (wait_for_device)."""
        pairs = zip(self.marks, self.marks[1:])
        return [a.elapsed_time(b) * 1e-3 if self.on_device else b - a for (a, _), (b, _) in pairs]

    def processor_seconds(self):
        """Of all threads of this process."""
        return [b - a for (_, a), (_, b) in zip(self.marks, self.marks[1:])]


def wait_for_device(device):
    if device.type != "cpu":
        torch.cuda.synchronize()
