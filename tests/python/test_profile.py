"""linerate.profile records what explain reads: one rank, and two over gloo."""

import subprocess
import sys
import textwrap

import pytest

import linerate

torch = pytest.importorskip("torch")  # tools/python-package runs this file where it is


def test_one_rank_is_recorded_and_explained(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with linerate.profile(tmp_path / "traces", steps=3) as prof:
        for _ in range(7):
            model(torch.randn(32, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    assert prof.path == str(tmp_path / "traces/rank0.json.gz")
    e = linerate.explain(tmp_path / "traces")
    assert len(e.steps) == 3 and e.one_rank_step_s > 0
    assert [g.name for g in linerate.import_workload(tmp_path / "traces").gradients]


def test_too_few_steps_are_an_error(tmp_path):
    with pytest.raises(linerate.UsageError, match="expected 7 calls of step.*found 1"):
        with linerate.profile(tmp_path, steps=3) as prof:
            prof.step()


def test_two_ranks_write_a_trace_each(tmp_path):
    program = tmp_path / "job.py"
    program.write_text(textwrap.dedent("""
        import sys, torch, linerate, torch.distributed as dist
        dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/store",
                                rank=int(sys.argv[1]), world_size=2)
        torch.set_num_threads(1)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
        with linerate.profile(sys.argv[2] + "/traces", steps=3, skip=1) as prof:
            for _ in range(6):
                model(torch.randn(8, 64)).sum().backward()
                prof.step()
        dist.destroy_process_group()
    """))
    ranks = [subprocess.Popen([sys.executable, program, str(r), tmp_path]) for r in range(2)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    e = linerate.explain(tmp_path / "traces")
    assert e.ranks_of_job == 2 and len(e.ranks) == 2
