"""Stands in for the package linerate.torch, which a distribution of its own, linerate-torch, puts
next to this file."""
raise ModuleNotFoundError(
    "linerate.torch: its native code is not part of this distribution, which needs no PyTorch. It "
    "is built against the PyTorch that is there, from the repository: pip install "
    "'scikit-build-core>=0.10' && pip install --no-build-isolation ./python/torch",
    name="linerate.torch",
)
