"""The examples learn, under torchrun and as sbatch would start them."""
import os
import pathlib
import re
import sys

import pytest
from jobs import HERE, environment, run, torchrun

EXAMPLES = HERE.parents[1] / "examples/python"
# Starts as many tasks as SLURM_NTASKS says, with what srun sets.
SRUN = """#!/bin/bash
for ((r = 0; r < SLURM_NTASKS; ++r)); do
  SLURM_PROCID=$r SLURM_LOCALID=$r SLURM_STEP_NODELIST=localhost "$@" & ranks+=($!)
done
for rank in "${ranks[@]}"; do wait "$rank" || failed=1; done
exit ${failed:-0}
"""


def losses(output):
    return [float(x) for x in re.findall(r"step \d+: loss ([\d.]+)", output)]


@pytest.mark.parametrize("name,arguments", (
    ("resnet.py", ("--strategy", "dear", "--steps", "40", "--record", "run.json")),
    ("gpt.py", ("--strategy", "ddp+topk(density=0.05)", "--steps", "20"))))
def test_example_learns_under_torchrun(name, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output = torchrun(2, EXAMPLES / name, *arguments)
    assert status == 0, output
    found = losses(output)
    assert len(found) >= 2 and found[-1] < 0.97 * found[0], output
    # nothing that was not asked for
    assert [f.name for f in tmp_path.iterdir()] == [a for a in arguments if a.endswith(".json")]


def test_lightning_has_the_weights_of_its_own_strategy():
    pytest.importorskip("lightning.pytorch", reason="no PyTorch Lightning here")
    status, output = torchrun(2, EXAMPLES / "lightning_strategy.py")
    assert status == 0 and output.count("bit for bit") == 2, output


def test_sbatch_script(tmp_path, monkeypatch):
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    folder = pathlib.Path(sys.executable).parent
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES.parent)
    done = run("bash", EXAMPLES / "train.sbatch", "gpt.py", "--strategy", "auto", "--steps", "20",
               env=environment(PATH=f"{tmp_path}:{folder}:{os.environ['PATH']}", SLURM_NTASKS="2",
                               SLURM_JOB_ID=str(os.getpid()), SLURM_CPUS_PER_TASK="1",
                               SLURM_SUBMIT_DIR=str(tmp_path)))
    assert done.returncode == 0, done.stdout
    found = losses(done.stdout)
    assert len(found) >= 2 and found[-1] < found[0], done.stdout
