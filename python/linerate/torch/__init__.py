"""Data-parallel training of PyTorch models: a distribution of its own, linerate-torch, fills this module."""

try:
    from linerate_torch import *  # noqa: F403
except ModuleNotFoundError as error:
    if error.name != "linerate_torch":
        raise
    raise ModuleNotFoundError(
        "linerate.torch: its native code is not part of this distribution, which needs no PyTorch. It is built against one "
        "PyTorch as a distribution of its own, linerate-torch, which is not there yet; until then train from C++ with "
        "linerate/torch_adapter/data_parallel.hpp, or with linerate train from a build with LibTorch (make build in the "
        "repository)",
        name="linerate_torch",
    ) from None
