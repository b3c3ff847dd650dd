"""Fixtures of the package's tests: files of the repository, and the command that was installed with
the package."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests/trace/fixtures"
TABLES = ROOT / "tests/calibrate/recorded"
# What the build under test was made without: "mpi", unless pip is told otherwise.
LACKS = os.environ.get("LINERATE_LACKS", "mpi").split()


def command() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "linerate"
    found = str(beside) if beside.exists() else shutil.which("linerate")
    assert found, "no command linerate on PATH: install the package"
    return found


def run(*words, check=True):
    """What the command prints."""
    done = subprocess.run([command(), *map(str, words)], capture_output=True, text=True, cwd=ROOT)
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="session")
def documents(tmp_path_factory):
    """Documents of the fixtures: as objects and, the same, as files."""
    import linerate

    folder = tmp_path_factory.mktemp("documents")
    made = {
        "workload": linerate.import_workload(str(TRACES / "even2.rank*.json.gz")),
        "timeline": linerate.import_timeline(str(TRACES / "even2.rank*.json.gz")),
        "late": linerate.import_timeline(str(TRACES / "late2.rank*.json.gz")),
        "cluster": linerate.calibrate([TABLES / "runs_2ranks_1Gbit.csv"], ranks=2),
    }
    made["predictions"] = linerate.whatif(made["workload"], made["cluster"], ranks=[2, 16],
                                          strategy=["ddp", "dear"])
    made["predicted"] = made["predictions"][0].timeline()
    made["advice"] = linerate.advise(made["workload"], made["cluster"], ranks=4)
    for name, document in made.items():
        document.save(folder / f"{name}.json")
    return made, folder
