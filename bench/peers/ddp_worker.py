"""PyTorch's side of bench/exchange: one rank of DistributedDataParallel over Gloo, with its default options.

Same models, parameters, batches, optimizer and commands as bench/exchange_worker.cpp (which see).
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

from models import build


def main():
    model_name, folder, batch, rank = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=os.environ["LINERATE_DDP_INIT"], rank=rank, world_size=2)
    model = build(model_name)
    parameters = list(model.parameters())

    def reset():
        flat = torch.from_file(f"{folder}/parameters", dtype=torch.float32, size=sum(p.numel() for p in parameters))
        with torch.no_grad():
            for p, piece in zip(parameters, flat.split([p.numel() for p in parameters])):
                p.copy_(piece.view_as(p))

    x = torch.from_file(f"{folder}/x{rank}", dtype=torch.float32, size=batch * 3 * 32 * 32).view(batch, 3, 32, 32).clone()
    y = torch.from_file(f"{folder}/y{rank}", dtype=torch.int64, size=batch).clone()
    reset()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def gradients():
        optimizer.zero_grad()
        loss_of(parallel(x), y).backward()

    for line in sys.stdin:
        verb, _, argument = line.split()
        if verb == "check":
            reset()
            gradients()
            with open(argument, "wb") as file:
                for p in parameters:
                    file.write(p.grad.contiguous().numpy().tobytes())
            reset()
            answer = {}
        else:
            step_s, cpu_s = [], []
            for _ in range(int(argument)):
                start, cpu = time.perf_counter(), time.process_time()
                gradients()
                optimizer.step()
                step_s.append(time.perf_counter() - start)
                cpu_s.append(time.process_time() - cpu)
            answer = {"step_s": step_s, "cpu_s": cpu_s}
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


main()
