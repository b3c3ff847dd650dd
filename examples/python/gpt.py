#!/usr/bin/env python3
"""A small language model that learns to count, data-parallel with linerate; saved half-way and
resumed.

torchrun --nproc-per-node 2 examples/python/gpt.py --strategy "ddp+topk(density=0.05)"
srun -n 4 python examples/python/gpt.py
"""
import argparse

import torch
from torch import nn

import linerate.torch as lt

WORDS, LENGTH = 32, 16


class Gpt(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True,
                                           norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        x = self.words(tokens) + self.places(torch.arange(LENGTH))
        return self.head(self.blocks(x, mask=mask, is_causal=True))


def batch_of(step, rank):
    g = torch.Generator().manual_seed(1000 * step + rank)
    start, stride = (torch.randint(WORDS, (16, 1), generator=g),
                     torch.randint(1, 4, (16, 1), generator=g))
    tokens = (start + stride * torch.arange(LENGTH + 1)) % WORDS
    return tokens[:, :-1], tokens[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--steps", type=int, default=40)
    o = parser.parse_args()

    lt.init()

    def begin():
        torch.manual_seed(0)
        model = Gpt().to(lt.device())
        return (lt.DataParallel(model, strategy=o.strategy),
                torch.optim.AdamW(model.parameters(), 3e-3))

    dp, opt = begin()
    for step in range(o.steps):
        # every rank makes a checkpoint, and goes on from it as another program would
        if step == o.steps // 2:
            saved = {"model": dp.state_dict(), "exchange": dp.exchange_state(),
                     "optimizer": opt.state_dict()}
            dp.close()
            dp, opt = begin()
            dp.load_state_dict(saved["model"])
            dp.load_exchange_state(saved["exchange"])
            opt.load_state_dict(saved["optimizer"])
        x, y = batch_of(step, lt.rank())
        loss = nn.functional.cross_entropy(dp(x).flatten(0, 1), y.flatten())
        loss.backward()
        dp.finish()
        nn.utils.clip_grad_norm_(dp.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        if lt.rank() == 0 and step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    dp.require_same_weights()


main()
