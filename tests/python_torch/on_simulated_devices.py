#!/usr/bin/env python3
"""Trains on the simulated accelerator of tests/simulated_device as a program trains on a GPU,
against the CPU: test_simulated_devices.py.

usage: torchrun --nproc-per-node 2 on_simulated_devices.py LIBRARY

Weights and buffers are the CPU's bit for bit (within 1e-6 under K-FAC), nothing is used before it
is there, and in steps the host waits for nothing.
"""
import sys
import types

import torch
import torch.distributed as dist
from uses import Net, TorchDDP, build, images, loss_of, require_equal, sgd

import linerate.torch as lt

STEPS = 8
STRATEGIES = ("ddp", "dear", "ddp+powersgd(dense_below=0)", "ddp+topk(dense_below=0)",
              "ddp+kfac(spd)")

# of the CPU's other code: what the same code computes there is compared
OTHER_ARITHMETIC = "powersgd"
# Between steps: a recording begins, or a plan by measured times is made.
NAMED = {"an event", "an event [compare clocks]", "an event [times of measured steps]"}


def back_end(store, rank, size, timeout):
    """Collectives of such devices' memory: gloo exchanges the bytes, in streams of the back end's
    own."""
    gloo, cpu = dist.ProcessGroup.BackendType.GLOO, torch.device("cpu")
    under = dist.ProcessGroup(store, rank, size)
    under._register_backend(cpu, gloo, dist.ProcessGroupGloo(dist.PrefixStore("sim", store), rank,
                                                             size, timeout=timeout))
    under._set_group_name("under sim")
    torch._C._distributed_c10d._register_process_group("under sim", under)
    ops.serve("under sim")
    torch._C._distributed_c10d._unregister_process_group("under sim")
    return under._get_backend(torch.device("sim"))


def train(strategy, device):
    """(name, tensor) of all that was trained."""
    model = build(Net).to(device)
    opt = sgd(model.parameters())
    enqueues = device.type == "cpu" and OTHER_ARITHMETIC in strategy
    dp = lt.DataParallel(model, strategy=strategy, measured_steps=2, most_above_ddp=float("inf"),
                         device_group=dist.group.WORLD if enqueues else None)
    batches = [[t.to(device) for t in images(step)] for step in range(STEPS)]
    assert not ops.conflicts(dist.get_rank())
    ops.forget(dist.get_rank())
    for step, (x, y) in enumerate(batches):
        if step % 3 == 1:
            dp.set_batch(len(x) + dist.get_rank())
        if step % 4 == 2:
            with dp.no_sync():
                loss_of(dp(x), y).backward()
        loss_of(dp(x), y).backward()
        dp.step(opt)
    dp.settle()
    if device.type != "cpu":
        conflicts, waits = ops.conflicts(dist.get_rank()), ops.host_waits(dist.get_rank())
        assert not conflicts, f"{strategy}: {conflicts}"
        assert {line.partition(" x ")[2] for line in waits.splitlines()} <= NAMED, (
            f"{strategy}: the host waits: {waits}")
        assert ops.launches(dist.get_rank()) > 100, "this did not train there"
        assert {p.device.type for p in model.parameters()} == {"sim"}
    dp.require_same_weights()
    trained = [(name, t.cpu()) for name, t in model.state_dict().items()]
    dp.close()
    return trained


def overflows(device, wrap):
    """Under a GradScaler whose first step overflows, and a later one on one rank: what was trained,
    and the scale after each step."""
    model = build(Net).to(device)
    opt, scaler = sgd(model.parameters()), torch.amp.GradScaler(device.type, init_scale=2.0**16)
    dp, scales = wrap(model), []
    for step in range(STEPS):
        x, y = (t.to(device) for t in images(step))
        factor = float("inf") if step == 0 or (step == 5 and dist.get_rank() == 1) else 1.0
        scaler.scale(loss_of(dp(x), y) * factor).backward()
        dp.step(opt, scaler=scaler)
        scales.append(scaler.get_scale())
    dp.settle()
    dp.close()
    return [(name, p.detach().cpu()) for name, p in model.named_parameters()], scales


def main():
    lt.init(timeout=60)
    mine = lt.device()
    assert mine == torch.device("sim", dist.get_rank()), mine
    for strategy in STRATEGIES:
        # K-FAC computes layers of one shape together on a device alone: its last bits may be others
        # there.
        exact = "kfac" not in strategy
        require_equal(strategy, train(strategy, mine), train(strategy, torch.device("cpu")), exact)
        print(f"rank {dist.get_rank()}: use {strategy}: ok", flush=True)
    expected, scales = overflows(torch.device("cpu"), TorchDDP)
    assert scales[0] < 2.0**16 and scales[5] < scales[4], scales
    for strategy in ("ddp", "dear"):
        found, here = overflows(mine, lambda model: lt.DataParallel(
            model, strategy=strategy, most_above_ddp=float("inf")))  # noqa: B023
        require_equal(f"{strategy} with overflows", found, expected)
        assert here == scales, (here, scales)
        print(f"rank {dist.get_rank()}: use {strategy} with overflows: ok", flush=True)
    lt.finalize()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.ops.load_library(sys.argv[1])
    torch.utils.rename_privateuse1_backend("sim")
    torch._register_device_module("sim", types.SimpleNamespace(is_available=lambda: True,
                                                               device_count=lambda: 4))
    ops = torch.ops.simulated_device
    dist.Backend.register_backend("sim", back_end, devices=["sim"])
    main()
