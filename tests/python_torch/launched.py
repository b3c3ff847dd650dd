#!/usr/bin/env python3
"""The loop of docs/python-training.md, started by a launcher other than torchrun:
test_launchers.py.

usage: mpirun -n 2 launched.py [mpi]      (mpi: linerate's own over MPI; else gloo)
"""
import hashlib
import sys

import torch
from torch import nn

import linerate.torch as lt

lt.init(*sys.argv[1:], timeout=60)
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 5)).to(lt.device())
opt = torch.optim.AdamW(model.parameters(), 1e-3)
dp = lt.DataParallel(model, strategy="dear")
batches = torch.Generator().manual_seed(lt.rank())
for _ in range(5):
    x, y = torch.randn(8, 10, generator=batches), torch.randint(5, (8,), generator=batches)
    nn.functional.cross_entropy(dp(x), y).backward()
    dp.step(opt)
dp.settle()
dp.require_same_weights()
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes()
                                  for p in model.parameters())).hexdigest()
timeline = dp.report().to_json()
assert bool(timeline) == (lt.rank() == 0)
print(f"rank {lt.rank()} of {lt.world_size()} over {dp._world.transport}: {weights}", flush=True)
