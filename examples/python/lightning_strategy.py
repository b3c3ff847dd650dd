#!/usr/bin/env python3
"""linerate under PyTorch Lightning: a strategy in place of its DDPStrategy.

torchrun --nproc-per-node 2 examples/python/lightning_strategy.py
"""
import contextlib

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy

import linerate.torch as lt


class LinerateStrategy(DDPStrategy):
    """Trainer(strategy=LinerateStrategy("ddp+powersgd(rank=4)"), accelerator="cpu", devices=...).
    Gradients are those of all ranks after each backward pass that is not accumulated; the optimizer
    is stepped as a whole, so "dear" overlaps with nothing."""

    def __init__(self, strategy="ddp", **options):
        super().__init__(process_group_backend="gloo")
        self._options, self._accumulates = {"strategy": strategy, **options}, False

    def _setup_model(self, model):
        return lt.DataParallel(model, **self._options)

    def pre_backward(self, closure_loss):
        pass

    def post_backward(self, closure_loss):
        if not self._accumulates:
            self.model.finish()

    @contextlib.contextmanager
    def block_backward_sync(self):
        self._accumulates = True
        with self.model.no_sync():
            yield
        self._accumulates = False

    def teardown(self):
        if isinstance(self.model, lt.DataParallel):
            self.model.close()
        super().teardown()


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.Tanh(),
                                       torch.nn.Linear(32, 1))

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def train(strategy, accumulate=2):
    pl.seed_everything(7, verbose=False)
    x = torch.randn(256, 10)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)),
                                       16)
    model = Regression()
    trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=2, max_epochs=3,
                         accumulate_grad_batches=accumulate, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False)
    trainer.fit(model, data)
    return model


if __name__ == "__main__":
    ours, theirs = (train(LinerateStrategy("optimal")),
                    train(DDPStrategy(process_group_backend="gloo")))
    same = all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters()))
    print("the weights of DDPStrategy, bit for bit" if same else "other weights than DDPStrategy's",
          flush=True)
