"""PyTorch's side of bench/exchange: one rank of DistributedDataParallel over Gloo, with its default
options and, where PEER is one, a communication hook.

Same models, parameters, batches, optimizer and commands as bench/exchange_worker.cpp (which see).
"""
import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from models import build

HOOKS = {
    "ddp": lambda parallel: None,
    "fp16_hook": lambda parallel: parallel.register_comm_hook(None, fp16_compress_hook),
    "powersgd_hook": lambda parallel: parallel.register_comm_hook(
        PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=10), powerSGD_hook),
}

# Its later rounds are started by callbacks, over Gloo on several threads: with two buckets the
# ranks' collectives came in different orders ("Received data size doesn't match expected size"). So
# it has one bucket.
ONE_BUCKET = {"powersgd_hook": {"bucket_cap_mb": 1 << 14}}


class Training:
    def __init__(self, model_name, folder, batch, rank, peer):
        self.folder = folder
        self.model = build(model_name)
        self.parameters = list(self.model.parameters())
        self.x = torch.from_file(f"{folder}/x{rank}", dtype=torch.float32,
                                 size=batch * 3 * 32 * 32).view(batch, 3, 32, 32).clone()
        self.y = torch.from_file(f"{folder}/y{rank}", dtype=torch.int64, size=batch).clone()
        self.reset()
        self.parallel = nn.parallel.DistributedDataParallel(self.model, **ONE_BUCKET.get(peer, {}))
        HOOKS[peer](self.parallel)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.loss_of = nn.CrossEntropyLoss()

    def reset(self, seed=1):
        sizes = [p.numel() for p in self.parameters]
        flat = torch.from_file(f"{self.folder}/parameters{seed}", dtype=torch.float32,
                               size=sum(sizes))
        with torch.no_grad():
            for p, piece in zip(self.parameters, flat.split(sizes)):
                p.copy_(piece.view_as(p))

    def gradients(self):
        self.optimizer.zero_grad()
        self.loss_of(self.parallel(self.x), self.y).backward()

    def check(self, path):
        self.reset()
        self.gradients()
        with open(path, "wb") as file:
            for p in self.parameters:
                file.write(p.grad.contiguous().numpy().tobytes())
        self.reset()
        return {}

    def run(self, steps):
        step_s, cpu_s = [], []
        for _ in range(steps):
            start, cpu = time.perf_counter(), time.process_time()
            self.gradients()
            self.optimizer.step()
            step_s.append(time.perf_counter() - start)
            cpu_s.append(time.process_time() - cpu)
        return {"step_s": step_s, "cpu_s": cpu_s}

    def train(self, seed, steps):
        self.reset(seed)
        for _ in range(steps):
            self.gradients()
            self.optimizer.step()
        bits = hashlib.sha256(b"".join(p.detach().numpy().tobytes()
                                       for p in self.parameters)).hexdigest()
        with torch.no_grad():
            return {"loss": self.loss_of(self.model(self.x), self.y).item(), "hash": bits}


def main():
    model_name, folder, batch, rank, peer = (sys.argv[1], sys.argv[2], int(sys.argv[3]),
                                             int(sys.argv[4]), sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=os.environ["LINERATE_DDP_INIT"], rank=rank,
                            world_size=2)
    begin = lambda: Training(model_name, folder, batch, rank, peer)
    training = begin()
    for line in sys.stdin:
        verb, _, argument = line.split()
        if verb == "check":
            answer = training.check(argument)
        elif verb == "loss":
            answer = begin().train(*map(int, argument.split(":")))
        else:
            answer = training.run(int(argument))
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


main()
