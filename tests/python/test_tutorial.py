"""The tutorial runs from its first cell to its last."""

import json
from pathlib import Path

import pytest
from conftest import ROOT

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")


def test_tutorial_runs(tmp_path):
    notebook = nbformat.read(ROOT / "examples/tutorial.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), (
        "commit the tutorial without outputs")
    folder = tmp_path / "examples"
    folder.mkdir()
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    nbclient.NotebookClient(notebook, timeout=120,
                            resources={"metadata": {"path": str(folder)}}).execute()
    shown = json.dumps(notebook)
    assert shown.count("<iframe srcdoc=") >= 4 and "Traceback" not in shown
    assert (folder / "tutorial-report.html").exists()
    Path(tmp_path / "tutorial.ipynb").write_text(shown)
