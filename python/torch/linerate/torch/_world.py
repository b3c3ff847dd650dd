"""Process groups, and the communicator that linerate makes of each."""
import atexit
import collections
import datetime
import os
import socket
import sys
import threading
import traceback
import warnings
import weakref

import torch
import torch.distributed as dist

from . import _advice, _core

_MPI = "linerate's MPI"
_LOW_DELAY, _INTERACTIVE = 0x10, 6  # IPTOS_LOWDELAY, TC_PRIO_INTERACTIVE
_worlds = {}  # process group (None: MPI's world) -> _core.World
_groups = {}  # process group -> the one of linerate's own
_sockets = {}  # process group -> those of the one of linerate's own, until hurry()
_made = collections.Counter()  # groups of linerate's own, by the name of the one that they are over
_parallels = weakref.WeakSet()  # closed before their worlds
_parallels_lock = threading.Lock()
_settings = {"timeout": 300.0, "checked": False}


def _from_launcher():
    """(rank, size, local rank) as torchrun, mpirun or srun put it into the environment; None if
    nothing did."""
    for names in (("RANK", "WORLD_SIZE", "LOCAL_RANK"),
                  ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
                  ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
                  ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")):
        rank, size = os.environ.get(names[0]), os.environ.get(names[1])
        if rank is not None and size is not None:
            return int(rank), int(size), int(os.environ.get(names[2], rank))
    return None


def _slurm_host():
    """The first host of "node[03-07,9],gpu2"."""
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST") or ""
    first = nodes.split(",")[0]
    if "[" in first:
        name, numbers = first.split("[", 1)
        first = name + numbers.split("-")[0].rstrip("]")
    return first


def _meeting_point(size):
    """Sets MASTER_ADDR and MASTER_PORT where the launcher has not."""
    if "MASTER_ADDR" not in os.environ:
        if "SLURM_PROCID" in os.environ:
            os.environ["MASTER_ADDR"] = _slurm_host() or "127.0.0.1"
        elif os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", str(size)) == str(size):
            os.environ["MASTER_ADDR"] = "127.0.0.1"
        else:
            raise _core.UsageError("init: the ranks are on several hosts, and nothing says where "
                                   "they meet: set MASTER_ADDR to rank 0's host, as mpirun -x "
                                   "MASTER_ADDR=$(hostname) ..., or use backend=\"mpi\"")
    if "MASTER_PORT" not in os.environ:
        job = os.environ.get("SLURM_JOB_ID", "0")
        os.environ["MASTER_PORT"] = str(29500 + int(job) % 1000)


def _accelerator():
    """This rank's, by its place on its host, or the current one if no launcher says that; None
    without one. Ranks share those that are too few."""
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None:
        return None
    place = _from_launcher()
    return torch.device(found.type, torch.accelerator.current_device_index()
                        if place is None else place[2] % torch.accelerator.device_count())


def _carries(backends, device):
    """Whether back ends, as PyTorch names them, exchange a device's memory where it lies; gloo
    copies it to the host."""
    return dist.distributed_c10d.BackendConfig(dist.Backend(backends)).get_device_backend_map().get(
        device.type, "gloo") != "gloo"


def _usual_backends(accelerator):
    """gloo, and the accelerator's own, if this torch has it."""
    own = (None if accelerator is None
           else dist.Backend.default_device_backend_map.get(accelerator.type))
    return (f"cpu:gloo,{accelerator.type}:{own}"
            if own not in (None, "gloo") and dist.is_backend_available(own) else "gloo")


def _refuse_link(backends, accelerator):
    """Where a back end exchanges a device's memory itself."""
    if "nccl" in backends or (accelerator is not None and _carries(backends, accelerator)):
        raise _core.UsageError(f"init: link=: expected back ends for CPUs, found \"{backends}\": "
                               "nothing paces what a device's own, such as NCCL, sends; use "
                               "lt.init(\"gloo\", link=...) or lt.init(\"mpi\", link=...), or slow "
                               "the network itself down (tools/gpu-lab run --rate)")


def init(backend=None, *, timeout=300.0, checked=False, link=None):
    """Joins the job's ranks. Collective; call it before any DataParallel.

    Under torchrun, srun or mpirun it calls torch.distributed.init_process_group, unless the program
    has done so. Alone it makes a job of one rank.
    `backend`: gloo. With an accelerator that torch can use, its own back end next to gloo, as
    "cpu:gloo,cuda:nccl". "mpi" is linerate's own over MPI, which needs mpirun and no process group.
    If the back ends exchange an accelerator's memory, device() becomes the current device, and the
    process group is bound to it (`device_id`). NCCL works in a stream of high priority.
    `timeout`: seconds. If a rank is silent or late for longer, the job ends with an error that
    names it.
    `checked`: ranks compare each collective before it runs.
    `link`: tries a slower network. Each rank sends as over a link of this rate, "1Gbit/s" or bytes
    per second, over gloo and MPI. A device's own back end (NCCL) is refused.
    The last call counts for what is wrapped after it.
    """
    if link is not None and backend != "mpi":
        accelerator = _accelerator()
        _refuse_link(dist.get_backend_config() if dist.is_initialized()
                     else backend or _usual_backends(accelerator), accelerator)
    _core.set_link(link if link is None or isinstance(link, str) else f"{float(link)!r}B/s")
    _settings.update(timeout=float(timeout), checked=bool(checked))
    if backend == "mpi":
        if not _core.have_mpi():
            raise _core.UsageError("init: backend=\"mpi\": linerate.torch was built without MPI; "
                                   "install libopenmpi-dev and build it again")
        if None not in _worlds:
            _worlds[None] = _core.mpi_world(_settings["timeout"], _settings["checked"])
        return
    if dist.is_initialized():
        return
    place, accelerator = _from_launcher(), _accelerator()
    if backend is None:
        backend = _usual_backends(accelerator)
    options = {"timeout": datetime.timedelta(seconds=_settings["timeout"])}
    if accelerator is not None and _carries(backend, accelerator):
        torch.accelerator.set_device_index(accelerator.index)
        # else newer NCCL back ends take the device by the rank among all
        options["device_id"] = accelerator
        if "nccl" in backend:
            options["pg_options"] = _nccl_options(options["timeout"])
    if place is None:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, **options)
        return
    _meeting_point(place[1])
    dist.init_process_group(backend, rank=place[0], world_size=place[1], **options)


def _nccl_options(timeout):
    """NCCL's kernels in a stream of high priority: they get multiprocessors as soon as some are
    free."""
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options._timeout = timeout
    return options


def note_priority(group, device):
    """Warns of an NCCL group that the program has made, whose stream has the priority of those that
    compute. Others say nothing of it."""
    try:
        options = group._get_backend(device).options
    except (RuntimeError, AttributeError):
        return  # no back end for that device: the collectives will say so; or one without options
    if getattr(options, "is_high_priority_stream", True):
        return
    warnings.warn(f"process group \"{group.group_name}\": NCCL works in a stream of normal "
                  "priority, so its kernels wait for multiprocessors that the backward pass fills; "
                  "let lt.init() make the group, or give init_process_group() or new_group() "
                  "pg_options=dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)",
                  stacklevel=3)


def device():
    """The device for the model. It is this rank's accelerator (LOCAL_RANK's on its host) if there
    is one and the ranks exchange its memory (init's `backend`, or the program's own process group).
    Otherwise it is the CPU. Steps on an accelerator have not run on a GPU yet (docs/devices.md).
    """
    accelerator = None if None in _worlds else _accelerator()
    if (accelerator is not None and dist.is_initialized()
        and dist.group.WORLD.bound_device_id is not None):
        return dist.group.WORLD.bound_device_id
    backends = dist.get_backend_config() if dist.is_initialized() else _usual_backends(accelerator)
    return (accelerator
            if accelerator is not None and _carries(backends, accelerator) else torch.device("cpu"))


def rank():
    """This process's rank among all."""
    return _worlds[None].rank if None in _worlds else dist.get_rank()


def world_size():
    """Ranks of the job."""
    return _worlds[None].size if None in _worlds else dist.get_world_size()


def _open_sockets():
    """{(file descriptor, what the kernel calls the socket)}; none where there is no /proc."""
    found = set()
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # closed since
        if target.startswith("socket:"):
            found.add((int(name), target))
    return found


def hurry(process_group):
    """Marks what linerate's own group over these ranks sends as of low delay (IP_TOS, SO_PRIORITY).
    Hosts wait for its few bytes in each step that is enqueued, while the device's collectives fill
    the queues of the same links: where a network goes by marks, these pass."""
    for fd, target in _sockets.pop(group_of(process_group), set()) & _open_sockets():
        with socket.socket(fileno=os.dup(fd)) as one:
            try:
                if one.family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _LOW_DELAY)
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _LOW_DELAY)
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _INTERACTIVE)
            except OSError:
                # not a connection of its kind, or the kernel does not let it: slower, not wrong
                pass


def _own_group(group):
    """A gloo group of linerate's own over the same ranks, which C++ finds by its name: (name,
    group).

    Not dist.new_group(): it either has to be called by all ranks of the job, or names the group by
    how many this process has, on which ranks of overlapping groups do not agree."""
    limit = datetime.timedelta(seconds=_settings["timeout"])
    number = _made[group.group_name]
    _made[group.group_name] += 1
    name = f"linerate {number} over {group.group_name}"
    store, rank, size = (dist.PrefixStore(name, group.get_group_store()), dist.get_rank(group),
                         dist.get_world_size(group))
    gloo, cpu = dist.ProcessGroup.BackendType.GLOO, torch.device("cpu")
    own = dist.ProcessGroup(store, rank, size)
    own._set_default_backend(gloo)
    before = _open_sockets()
    own._register_backend(cpu, gloo, dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank,
                                                           size, timeout=limit))
    _sockets[group] = _open_sockets() - before
    own._set_group_name(name)
    torch._C._distributed_c10d._register_process_group(name, own)
    return name, own


def group_of(process_group):
    """PyTorch's; None: that of all ranks."""
    return dist.group.WORLD if process_group is None else process_group


def world_of(process_group):
    """The communicator over a group's ranks; collective over them the first time. Messages travel
    over a gloo group of linerate's own, so that a program's own messages and collectives are not
    disturbed."""
    if process_group is None and None in _worlds:
        return _worlds[None]
    if not dist.is_initialized():
        raise _core.UsageError("there is no process group yet: call lt.init(), or "
                               "torch.distributed.init_process_group()")
    group = group_of(process_group)
    if group is dist.GroupMember.NON_GROUP_MEMBER or dist.get_rank(group) < 0:
        raise _core.UsageError(f"process_group=: rank {dist.get_rank()} is not in this group; wrap "
                               "the model on its ranks alone")
    if group not in _worlds:
        name, _groups[group] = _own_group(group)
        _worlds[group] = _core.world_of_group(name, _settings["timeout"], _settings["checked"])
    return _worlds[group]


def has_ranks():
    """Whether there is a job to tell anything to."""
    return None in _worlds or dist.is_initialized()


def keep(parallel):
    with _parallels_lock:
        _parallels.add(parallel)


def forget(parallel):
    with _parallels_lock:
        _parallels.discard(parallel)


def kept(kind):
    """Those of a class that are open."""
    with _parallels_lock:
        return [one for one in _parallels if isinstance(one, kind)]


def kept_all():
    with _parallels_lock:
        return list(_parallels)


def finalize():
    """Closes what is open: at the end of the program, which calls it by itself. Updates under way
    are done. If an exception ended the program, the other ranks hear which."""
    error = getattr(sys, "last_value", None)
    if error is not None:
        words = "".join(traceback.format_exception_only(type(error), error)).strip()
        for world in _worlds.values():
            _quietly(world.abort, words)
    for parallel in list(_parallels):
        _quietly(parallel.close)
    _advice._calibrations.clear()
    for key in list(_worlds):
        _quietly(_worlds.pop(key).close)
        _sockets.pop(key, None)
        own = _groups.pop(key, None)
        if own is not None:
            torch._C._distributed_c10d._unregister_process_group(own.group_name)


def _quietly(action, *arguments):
    try:
        action(*arguments)
    except _core.Error:
        pass  # said where it happened


def _own_nothing():
    """In a child, as a data loader's worker is: it has none of the threads that exchange."""
    global _parallels, _parallels_lock
    atexit.unregister(finalize)
    _parallels, _parallels_lock = weakref.WeakSet(), threading.Lock()


atexit.register(finalize)
os.register_at_fork(after_in_child=_own_nothing)
