#!/usr/bin/env python3
"""A residual network on random images, data-parallel with linerate.

torchrun --nproc-per-node 2 examples/python/resnet.py --strategy dear --record run.json
srun -n 4 python examples/python/resnet.py
"""
import argparse

import torch
from torch import nn

import linerate.torch as lt


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.body(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--record", metavar="FILE",
                        help="where the recorded steps go, for linerate explain")
    o = parser.parse_args()

    lt.init()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Block(16), Block(16),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    model = model.to(lt.device())
    dp = lt.DataParallel(model, strategy=o.strategy)
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, o.steps)

    # Ten images for each class and rank, which the network learns by heart.
    data = torch.Generator().manual_seed(lt.rank())
    x, y = torch.randn(100, 3, 16, 16, generator=data), torch.arange(100) % 10
    for step in range(o.steps):
        loss = nn.functional.cross_entropy(dp(x), y)
        loss.backward()
        dp.step(opt)
        schedule.step()
        if lt.rank() == 0 and step % 5 == 4:
            print(f"step {step + 1}: loss {loss.item():.3f}, {1e3 * dp.last_report.exposed_s:.1f} "
                  "ms of communication not hidden")
    dp.settle()
    dp.require_same_weights()
    if o.record:
        dp.report().save(o.record)


main()
