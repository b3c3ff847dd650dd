"""What tests of tools/ share: a script as a module, and trees that a check is run on."""
import runpy
import subprocess
import sys
import tempfile
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def module_of(script):
    """What a script of this tree defines."""
    return types.SimpleNamespace(**runpy.run_path(str(ROOT / script)))


def printed(check, files):
    """(lines that a check of tools/ prints on a tree with these {name: text}, its exit status)"""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run = subprocess.run([sys.executable, ROOT / "tools" / check, folder], capture_output=True,
                             text=True)
    assert run.stderr == "", run.stderr
    return run.stdout.splitlines(), run.returncode
