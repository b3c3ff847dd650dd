"""What comes from DistributedDataParallel and is taken otherwise here, said in words at
construction."""
from torch import nn
from torch.nn.parameter import is_lazy

from . import _core

# docs/from-pytorch-ddp-python.md has the whole table.
_INSTEAD = {
    "device_ids": "leave it out: parameters are where the model is",
    "output_device": "leave it out: outputs are where the model leaves them",
    "dim": "leave it out: each rank makes its own batch",
    "broadcast_buffers": "say buffers=\"broadcast\" or buffers=\"keep\"",
    "forward_sync_buffers": "say buffers=\"broadcast\" or buffers=\"keep\"",
    "init_sync": "leave it out: every rank starts as rank 0",
    "bucket_cap_mb": "say it in the strategy: \"ddp(bucket_cap_mb=25)\"",
    "bucket_cap_mb_list": "say it in the strategy: \"ddp(first=1MiB,bucket=25MiB)\"",
    "find_unused_parameters": "leave it out: unused parameters are always found",
    "gradient_as_bucket_view": "leave it out: gradients exist once after finish()",
    "static_graph": "leave it out: graphs may change from step to step",
    "mixed_precision": "say it in the strategy, for the wire: \"ddp(wire=bf16)\"; for computation "
                       "use torch.autocast",
    "device_mesh": "give the group of one of its dimensions as process_group=",
    "levenberg_marquardt": "linerate has no such damping: leave it out, and say the damping in the "
                           "strategy: \"kfac(damping=0.03)\"",
}


def unknown_options(names, of="DataParallel"):
    """The message for keywords that `of` does not have."""
    each = (f"{name}=: {_INSTEAD.get(name, 'no such option')}" for name in names)
    return f"{of}: {'; '.join(each)} (docs/from-pytorch-ddp-python.md)"


def _why_not(layer):
    # by name: not to import what a program does not use
    kinds = {kind.__name__ for kind in type(layer).__mro__}
    if "FullyShardedDataParallel" in kinds or "FSDPModule" in kinds:
        return "is sharded by FSDP, which exchanges gradients itself: wrap the plain model"
    if isinstance(layer, nn.parallel.DistributedDataParallel):
        return "is a DistributedDataParallel, which exchanges gradients itself: wrap its .module"
    if isinstance(getattr(layer, "_core", None), _core.Parallel):
        return "is a DataParallel already"
    if isinstance(layer, nn.SyncBatchNorm):
        return ("is a SyncBatchNorm, which PyTorch computes on GPUs alone; "
                "use BatchNorm, whose statistics follow rank 0 (buffers=\"broadcast\")")
    if (isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse
        and layer.weight.requires_grad):
        return "makes sparse gradients; only dense ones are exchanged: make it with sparse=False"
    return None


def why_not_trainable(module):
    """What of it cannot be exchanged, with the layer's name; "" if all can."""
    if not isinstance(module, nn.Module):
        return f"expected a torch.nn.Module, found {type(module).__name__}"
    for name, layer in module.named_modules():
        if (why := _why_not(layer)) is not None:
            place = f'layer "{name}"' if name else "the model"
            return f"{place} {why}"
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            return f"parameter \"{name}\" has no shape yet: run one forward pass before wrapping"
        if type(parameter).__name__ == "DTensor" or hasattr(parameter, "placements"):
            return (f"parameter \"{name}\" is a DTensor, a part of which is on each rank: wrap a "
                    "model of plain tensors")
    return ""
