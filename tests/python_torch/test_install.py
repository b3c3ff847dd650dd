"""What is said where linerate.torch cannot be built or imported."""
import sys

import pytest
from jobs import HERE, run

SOURCE = HERE.parents[1] / "python/torch"


def python(code):
    return run(sys.executable, "-c", code)


def test_import_with_another_torch_says_what_to_type():
    done = python("import torch; built = torch.__version__; torch.__version__ = '2.99.0+other'; "
                  "import linerate.torch")
    assert done.returncode == 1
    last = done.stdout.strip().splitlines()[-2:]
    assert ("linerate.torch was built for torch " in last[0]
            and "this is torch 2.99.0+other. Type:" in last[0]), done.stdout
    assert (last[1].strip() == "pip install --no-build-isolation --force-reinstall --no-deps "
                               f"{SOURCE}"), done.stdout


def backend(*hidden):
    """The build's first question, where these modules are not there."""
    return python(f"""
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name in {hidden!r} else find(name, *a)
sys.path.insert(0, {str(SOURCE / "backend")!r})
import linerate_torch_backend
linerate_torch_backend.get_requires_for_build_wheel()
""")


def test_build_without_torch_stops_and_says_so():
    done = backend("torch")
    assert done.returncode != 0
    assert ("this build sees none" in done.stdout
            and "pip install --no-build-isolation ./python/torch" in done.stdout), done.stdout


def test_build_without_its_backend_says_what_to_install():
    done = backend("scikit_build_core")
    assert (done.returncode != 0
            and "pip install 'scikit-build-core>=0.10'" in done.stdout), done.stdout
    assert backend().returncode == 0


def test_pip_with_build_isolation_stops_and_says_so(tmp_path):
    """pip's own isolation: it needs an index to fetch the backend from."""
    done = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, SOURCE)
    if "Could not find a version" in done.stdout or "No matching distribution" in done.stdout:
        pytest.skip("no package index here")
    assert done.returncode != 0 and not list(tmp_path.iterdir())
    assert ("this build sees none" in done.stdout
            and "pip install --no-build-isolation ./python/torch" in done.stdout), done.stdout
