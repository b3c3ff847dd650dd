"""One program under each launcher: the same weights on two ranks, whatever carries the messages."""
import os
import re
import subprocess
import sys
import types
import warnings

import pytest
import torch
from jobs import HERE, LAUNCHERS, environment, run, torchrun

PROGRAM = HERE / "launched.py"
MPIRUN = HERE.parents[1] / "tools/mpirun"


def results(output):
    """{rank: (ranks, transport, weights)}"""
    return {int(r): (int(n), t, w)
            for r, n, t, w in re.findall(r"rank (\d+) of (\d+) over (\S+): (\w{64})", output)}


@pytest.fixture(scope="module")
def torchruns():
    status, output = torchrun(2, PROGRAM)
    assert status == 0, output
    found = results(output)
    assert set(found) == {0, 1} and found[0] == found[1], output
    return found


def mpirun(*arguments):
    done = run(MPIRUN, "-n", "2", sys.executable, PROGRAM, *arguments, env=environment())
    assert done.returncode == 0, done.stdout
    return results(done.stdout)


def test_mpirun_with_gloo(torchruns):
    assert mpirun() == torchruns


def test_mpirun_with_mpi(torchruns):
    found = mpirun("mpi")
    assert {r: (n, w) for r, (n, _, w) in found.items()} == {r: (n, w)
                                                             for r, (n, _, w) in torchruns.items()}
    assert {t for _, t, _ in found.values()} == {"mpi"} and torchruns[0][1] != "mpi"


@pytest.mark.parametrize("nodes", ("localhost", "localhost,other[3-5]"))
def test_slurm(torchruns, nodes):
    """What srun sets for two tasks; srun itself is not needed. The ranks meet at the step's first
    host."""
    job = str(os.getpid())
    ranks = [subprocess.Popen(
        [sys.executable, PROGRAM], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=environment(SLURM_PROCID=str(r), SLURM_NTASKS="2", SLURM_LOCALID=str(r),
                        SLURM_JOB_ID=job, SLURM_STEP_NODELIST=nodes)) for r in range(2)]
    try:
        outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert results("".join(outputs)) == torchruns


@pytest.mark.parametrize("nodes,first", (("node[03-07,9],gpu2", "node03"), ("gpu2", "gpu2"),
                                         ("a[1,4]", "a1"), ("x-3,y", "x-3")))
def test_slurms_first_host(nodes, first, monkeypatch):
    from linerate.torch import _world
    monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
    assert _world._slurm_host() == first


def test_mpirun_over_several_hosts_says_what_is_missing(monkeypatch):
    import linerate.torch as lt
    from linerate.torch import _world
    for name in list(os.environ):
        if name.startswith(LAUNCHERS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
    with pytest.raises(lt.UsageError, match="set MASTER_ADDR to rank 0's host"):
        _world._meeting_point(2)


ON_ACCELERATORS = """
import sys, torch, torch.distributed as dist, linerate.torch as lt
accelerator, current = torch.accelerator, [2]
accelerator.current_accelerator = lambda check_available=False: torch.device("privateuseone")
accelerator.device_count = lambda: 4
accelerator.current_device_index = lambda: current[-1]
accelerator.set_device_index = current.append
dist.Backend.register_backend("fakeccl", dist.ProcessGroupGloo, devices=["privateuseone"])
print("before", lt.device())
{init}
print("after", lt.device(), "current", current[-1], "bound to", dist.group.WORLD.bound_device_id)
"""


@pytest.mark.parametrize("init,place,chosen", (
    ("lt.init()", {"LOCAL_RANK": "1"}, 1),
    ("lt.init()", {"LOCAL_RANK": "7"}, 3),  # more ranks than devices
    ("lt.init()", {}, 2),  # no launcher: the device that is current
    ("lt.init('fakeccl')", {"LOCAL_RANK": "0"}, 0),
    ("lt.init('gloo')", {"LOCAL_RANK": "1"}, None),  # which would carry it through the host
    ("dist.init_process_group('cpu:gloo,privateuseone:fakeccl', rank=0, world_size=1, "
     "store=dist.HashStore())", {"LOCAL_RANK": "1"}, 1),
))
def test_device_is_the_accelerator_of_the_local_rank(init, place, chosen):
    """Four devices that are none: what is current and bound to the process group is looked at, not
    used."""
    launched = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
                **place} if place else {}
    done = run(sys.executable, "-c", ON_ACCELERATORS.format(init=init),
               env=environment(**launched))
    before, after = re.findall(r"(?:before|after) .*", done.stdout)
    usual = f"privateuseone:{int(place.get('LOCAL_RANK', 2)) % 4}"
    found = usual if chosen is not None else "cpu"
    own = init.startswith("dist") or chosen is None  # the program's group is its own matter
    assert (before == f"before {usual}"
            and after == f"after {found} current {2 if own else chosen} bound to "
                         f"{None if own else found}"), done.stdout


ON_GPUS = """
import types, torch, torch.distributed as dist, linerate.torch as lt
from linerate.torch import _world
accelerator = torch.accelerator
accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
accelerator.device_count, accelerator.current_device_index = lambda: 1, lambda: 0
accelerator.set_device_index = lambda index: None
dist.ProcessGroupNCCL = types.SimpleNamespace(
    Options=lambda **options: types.SimpleNamespace(**options))
_world._carries = lambda backend, accelerator: True
def joined(backend, pg_options=None, timeout=None, **others):
    print("high priority", getattr(pg_options, "is_high_priority_stream", None),
          getattr(pg_options, "_timeout", timeout) == timeout)
dist.init_process_group = joined
lt.init("cpu:gloo,cuda:nccl", timeout=77)
lt.init("gloo", timeout=77)
for backend in (None, "cpu:gloo,cuda:nccl"):
    try:
        lt.init(backend, link="1Gbit/s")
    except lt.UsageError as error:
        print("refused", "link=" in str(error) and "NCCL" in str(error))
"""


def test_nccl_works_in_a_stream_of_high_priority_and_over_no_link():
    """What PyTorch is asked for; there is no NCCL in a build for CPUs."""
    done = run(sys.executable, "-c", ON_GPUS, env=environment())
    assert done.stdout.splitlines() == ["high priority True True", "high priority None True",
                                        "refused True", "refused True"], done.stdout


@pytest.mark.parametrize("options,warned",
                         (({"is_high_priority_stream": False}, True),
                          ({"is_high_priority_stream": True}, False), ({}, False), (None, False)))
def test_an_nccl_group_of_normal_priority_is_warned_of(options, warned):
    """By what its back end says; gloo's options have no priority, and a group without a back end
    for the device is not asked."""
    from linerate.torch import _world

    def backend(device):
        if options is None:
            raise RuntimeError("No backend type associated with device type cuda")
        return types.SimpleNamespace(options=types.SimpleNamespace(**options))
    group = types.SimpleNamespace(group_name="mine", _get_backend=backend)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _world.note_priority(group, torch.device("cuda"))
    assert [("normal priority" in str(w.message), 'process group "mine"' in str(w.message))
            for w in said] == [(True, True)] * warned
