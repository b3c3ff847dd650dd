"""What tests of tools/ share: where the tree is, and a script as a module."""
import runpy
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def module_of(script):
    """What a script of this tree defines."""
    return types.SimpleNamespace(**runpy.run_path(str(ROOT / script)))
