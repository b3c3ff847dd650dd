"""tools/gpu-lab kit: all that a machine with a GPU and nothing but Python and torch needs to
measure linerate, and what is measured there.

Without --run it prepares, on a machine with network: it builds linerate.torch and the commands for
a Python and a torch (3.12 and 2.11.0+cu130), and puts them into .gpukit, which git ignores, with
the libraries that they need, Debian's ip and tc with theirs, and KAISA's kfac. It prints what is in
there and how large it is, and refuses a kit above 40 MB. An environment with that torch is made in
build/gpukit, 4.7 GB of downloads, unless --python names a Python that has it; --for-python and
--torch make a kit for others.

With --run it measures, on the machine with the GPU, in the checkout with .gpukit in it: stage by
stage, the most telling first, in at most 8.5 minutes. Nothing is compiled and nothing fetched
there. Each stage has a limit; one that fails or comes to its limit is said, and does not stop the
others. What stages print is in OUT/STAGE.txt, what peers, kfac, recordings and calibration write in
OUT/peers (docs/gpu-lab.md). After each stage ARCHIVE/results.tgz and ARCHIVE/traces.tgz have what
there is. Without a kit it runs what the checkout has built. Exit status 1 if a stage failed.
"""
import dataclasses
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))
from contenders import DDP, ON_GPUS, SHAPED  # noqa: E402

LARGEST_MB = 40
MINUTES = 8.5
# every machine with torch has them
OF_THE_MACHINE = re.compile(r"/(libc|libm|libdl|libpthread|librt|libutil|libgcc_s|libstdc\+\+|"
                            r"ld-linux[^/]*)\.so|/torch/lib/|/nvidia/")


class Refused(Exception):
    """Why there is no kit, and what helps."""


def add_options(parser):
    parser.add_argument("--run", dest="is_run", action="store_true",
                        help="measure, on the machine with the GPU")
    parser.add_argument("--kit", type=pathlib.Path, default=ROOT / ".gpukit",
                        help="the kit's folder (.gpukit)")
    parser.add_argument("--for-python", default="3.12", metavar="VERSION",
                        help="of the Python there (3.12)")
    parser.add_argument("--torch", default="2.11.0+cu130", metavar="VERSION",
                        help="of the torch there (2.11.0+cu130)")
    parser.add_argument("--kaisa", type=pathlib.Path, default=ROOT.parent / "shared/peers",
                        help="the folder that holds kfac/ of gpauloski/kfac-pytorch")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at once")
    parser.add_argument("--stages", nargs="+", metavar="STAGE", default=[s.name for s in STAGES],
                        help="of --run: some of "
                        + "; ".join(f"{s.name} ({s.what}, at most {s.limit_s} s)" for s in STAGES))
    parser.add_argument("--model", default="resnet50", help="of --run: what is trained (resnet50)")
    parser.add_argument("--minutes", type=float, default=MINUTES,
                        help=f"of --run: all stages together ({MINUTES})")
    parser.add_argument("--limits", type=float, default=1, metavar="FACTOR",
                        help="of --run: of the stages' limits, for a slow machine (1)")
    parser.add_argument("--out", type=pathlib.Path,
                        help="of --run: folder of the results (bench/results/gpu/DATE_DEVICE; on "
                             "CPUs build/gpu-lab)")
    parser.add_argument("--archive", type=pathlib.Path,
                        help="of --run: folder of the archives (OUT)")


# Preparing


def called(command, what, **more):
    """A command's output; Refused with its last lines if it fails."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise Refused("\n".join([f"{what}: {' '.join(map(str, command[:4]))} ... ended with "
                                 f"{done.returncode}:", *done.stdout.splitlines()[-20:]]))
    return done.stdout


def versions_of(python):
    """(Python's, torch's), such as ("3.12", "2.11.0+cu130")."""
    script = "import sys, torch; print('%d.%d' % sys.version_info[:2], torch.__version__)"
    return tuple(called([python, "-c", script], f"{python} has no torch").split()[-2:])


def python_of_version(version):
    """One with headers: on PATH, or pyenv's."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    places = [*map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python3"), reverse=True)),
              shutil.which(f"python{version}")]
    for python in filter(None, places):
        script = ("import sysconfig, pathlib; "
                  "print((pathlib.Path(sysconfig.get_paths()['include']) / 'Python.h').exists())")
        if subprocess.run([python, "-c", script], capture_output=True,
                          text=True).stdout.strip() == "True":
            return python
    raise Refused(f"no Python {version} with its headers: install python{version}-dev, or name one "
                  "that has the torch by --python")


def python_with(o):
    """A Python that has the torch of the machine there, so that what is built can be imported
    here."""
    environment = ROOT / "build/gpukit/venv"
    python = o.python or environment / "bin/python"
    if o.python is None and not python.exists():
        say(f"an environment with torch {o.torch} in {os.path.relpath(environment)}: 4.7 GB with "
            "CUDA's libraries")
        called([python_of_version(o.for_python), "-m", "venv", environment], "no environment")
        called([python, "-m", "pip", "install", "-q", "--no-cache-dir",
                f"torch=={o.torch.split('+')[0]}", "numpy"], "no torch")
    found = versions_of(python)
    if found != (o.for_python, o.torch):
        raise Refused(
            f"{python}: expected Python {o.for_python} with torch {o.torch}, found {found[0]} with "
            f"{found[1]}; --for-python {found[0]} --torch {found[1]} makes a kit for that")
    return python


def build(o, python):
    """Extension and commands, without MPI; in folders as deep as the others', so that the
    compiler's cache has what it can."""
    core, commands = ROOT / "build/gpukit-core", ROOT / "build/gpukit-commands"
    torch = called([python, "-c", "import torch; print(torch.__path__[0])"], "no torch").split()[-1]
    begun = time.monotonic()
    called(["cmake", "-S", ROOT / "python/torch", "-B", core, "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={python}",
            "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON",
            f"-DCMAKE_INSTALL_PREFIX={o.kit.resolve() / 'site'}"], "linerate.torch")
    called(["cmake", "--build", core, "-j", o.jobs, "--target", "_core"], "linerate.torch")
    called(["cmake", "--install", core, "--component", "python"], "linerate.torch")
    # CUDA's libraries are found when it runs, by torch's own: what these need of each other is not
    # looked for here.
    called(["cmake", "-S", ROOT, "-B", commands, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            "-DLINERATE_WITH_MPI=OFF", "-DLINERATE_BUILD_TESTS=OFF", "-DLINERATE_BUILD_BENCHES=OFF",
            "-DLINERATE_BUILD_EXAMPLES=OFF", "-DLINERATE_INSTALL=OFF",
            f"-DTorch_DIR={torch}/share/cmake/Torch",
            "-DCMAKE_EXE_LINKER_FLAGS=-s -Wl,--unresolved-symbols=ignore-in-shared-libs"],
           "the commands")
    called(["cmake", "--build", commands, "-j", o.jobs, "--target", "linerate", "linerate-torch"],
           "the commands")
    copy(o.kit / "bin", commands / "linerate", commands / "linerate-torch")
    copy(o.kit / "site/linerate/torch", *(ROOT / "python/torch/linerate/torch").glob("*.py"))
    say(f"built in {time.monotonic() - begun:.0f} s")


def copy(folder, *files):
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder)  # what a link points to


def libraries_of(programs):
    """The files of the shared libraries that programs need and a machine with torch may lack."""
    found = {}
    for program in programs:
        for line in called(["ldd", program], "its libraries").splitlines():
            name, _, path = line.strip().partition(" => ")
            path = path.split(" (")[0]
            if path.startswith("/") and not OF_THE_MACHINE.search(path):
                found[name] = path
            elif path == "not found" and not re.match(r"lib(torch|c10|cu|nv)", name):
                raise Refused(f"{program} needs {name}, which is not here")
    return found


def copy_libraries(folder, programs):
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in libraries_of(programs).items():
        shutil.copy(path, folder / name)


def copy_network_programs(kit):
    """Debian's, for images that have none."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    programs = [shutil.which(name, path=path) for name in ("ip", "tc")]
    if None in programs:
        raise Refused("no ip or no tc: install iproute2 (tools/setup)")
    copy(kit / "net/bin", *programs)
    copy_libraries(kit / "net/lib", programs)


def size_of(path):
    return (sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
            if path.is_dir() else path.stat().st_size)


def contents(kit):
    """[(part, bytes)], the largest first."""
    parts = [p for folder in kit.iterdir()
             for p in (folder.iterdir() if folder.is_dir() else [folder])]
    return sorted(((str(p.relative_to(kit)), size_of(p)) for p in parts), key=lambda part: -part[1])


def check_size(kit):
    """Prints what a kit has; Refused above LARGEST_MB."""
    for name, size in contents(kit):
        print(f"  {size / 1e6:8.2f} MB  {name}")
    megabytes = size_of(kit) / 1e6
    if megabytes > LARGEST_MB:
        name, size = contents(kit)[0]
        raise Refused(f"{kit}: {megabytes:.1f} MB, expected at most {LARGEST_MB}; the largest part "
                      f"is {name} with {size / 1e6:.1f} MB")
    print(f"{megabytes:.1f} MB of at most {LARGEST_MB} in {os.path.relpath(kit)}")


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def prepare(o):
    """Makes the kit. Raises Refused."""
    python = python_with(o)
    shutil.rmtree(o.kit, ignore_errors=True)
    o.kit.mkdir(parents=True)
    build(o, python)
    copy_libraries(o.kit / "lib",
                   [*(o.kit / "site/linerate/torch").glob("_core*.so"), *(o.kit / "bin").iterdir()])
    copy_network_programs(o.kit)
    if (o.kaisa / "kfac").is_dir():
        shutil.copytree(o.kaisa / "kfac", o.kit / "kaisa/kfac", copy_function=shutil.copyfile)
    else:
        say(f"{o.kaisa}/kfac is absent: KAISA's rows will say so; --kaisa names the folder that "
            "holds it")
    manifest = {"format": 1, "python": o.for_python, "torch": o.torch,
                "machine": platform.machine(), "commit": output_of("git", "rev-parse", "HEAD"),
                "changed": bool(output_of("git", "status", "--porcelain", "--untracked-files=no")),
                "date": time.strftime("%Y-%m-%d", time.gmtime())}
    (o.kit / "kit.json").write_text(json.dumps(manifest, indent=1) + "\n")
    imported = called([python, "-c", "import torch, linerate.torch as lt; print(lt.__version__)"],
                      "the kit's linerate.torch", env={**os.environ, **environment_of(o.kit)})
    check_size(o.kit)
    symbols = re.findall(r"GLIBC(?:XX)?_[0-9.]+", called([
        "objdump", "-T", *(o.kit / "site/linerate/torch").glob("_core*.so")], "its symbols"))
    newest = [max((s for s in symbols if s.startswith(kind)),
                  key=lambda s: [int(n) for n in s[len(kind):].split(".")])
              for kind in ("GLIBC_", "GLIBCXX_")]
    print(f"linerate.torch {imported.split()[-1]} for Python {o.for_python} and torch {o.torch}; "
          f"it needs {' and '.join(newest)} at most")
    print("there, in the checkout with that folder in it: tools/gpu-lab kit --run")


# Running


def environment_of(kit):
    """What Python and programs of the kit are told."""
    told = {"PYTHONPATH": kit.resolve() / "site", "LD_LIBRARY_PATH": kit.resolve() / "lib"}
    return {name: os.pathsep.join(filter(None, [str(value), os.environ.get(name)]))
            for name, value in told.items()}


class Setting:
    """What stages run with: a kit's files, or without one what the checkout has built."""

    def __init__(self, o, python_of_the_build, python_with_torch):
        self.device, self.model, self.ranks, self.out = o.device, o.model, o.ranks, o.out.resolve()
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"
                            if o.device == "cpu" else "4", "TORCH_FR_BUFFER_SIZE": "0"}
        manifest = o.kit / "kit.json"
        self.manifest = json.loads(manifest.read_text()) if manifest.exists() else None
        if self.manifest is None:
            say(f"{o.kit}: no kit; what this checkout has built runs")
            self.python, self.kaisa, self.linerate = (o.python or python_of_the_build(), o.kaisa,
                                                      ROOT / "build/release/linerate")
            return
        self.python, self.kaisa, self.linerate = (o.python or python_with_torch(), o.kit / "kaisa",
                                                  o.kit / "bin/linerate")
        self.environment |= {**environment_of(o.kit), "LINERATE_COMMIT": self.manifest["commit"]}
        self._make_programs_run(o.kit)
        self._compare_versions()

    def _make_programs_run(self, kit):
        """Files may have lost their modes on the way. ip and tc come with their own libraries,
        after those of the machine."""
        wrappers = self.out / "programs"
        wrappers.mkdir(parents=True, exist_ok=True)
        for program in (kit / "net/bin").iterdir():
            program.chmod(0o755)
            wrapper = wrappers / program.name
            wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={kit.resolve()}/net/lib exec '
                               f'{program.resolve()} "$@"\n')
            wrapper.chmod(0o755)
        for program in (kit / "bin").iterdir():
            program.chmod(0o755)
        self.environment["PATH"] = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin",
                                                    str(wrappers)])

    def _compare_versions(self):
        found, kit = versions_of(self.python), (self.manifest["python"], self.manifest["torch"])
        if found != kit:
            say(f"the kit is for Python {kit[0]} with torch {kit[1]}, found {found[0]} with "
                f"{found[1]}: linerate.torch may not be imported")
        here = output_of("git", "rev-parse", "HEAD")
        if here and here != self.manifest["commit"]:
            say(f"the kit is of commit {self.manifest['commit'][:8]}, this checkout of {here[:8]}")
        libraries = called([self.python, "-c", "import torch; print(torch.__path__[0] + '/lib')"],
                           "no torch").split()[-1]
        self.environment["LD_LIBRARY_PATH"] += f"{os.pathsep}{libraries}"  # linerate-torch's

    def lab(self, verb, limit_s, *more):
        return [sys.executable, ROOT / "tools/gpu-lab", verb, "--ranks", self.ranks, "--device",
                self.device, "--python", self.python, "--limit", limit_s, *more]

    def program(self, name, limit_s, *arguments):
        """One of bench/peers, once a rank."""
        return self.lab("run", limit_s, "--", self.python, ROOT / "bench/peers" / name, *arguments)

    def peers(self, limit_s, *more):
        return self.lab("peers", limit_s, "--model", self.model, "--kaisa", self.kaisa,
                        "--linerate", self.linerate, "--out", self.out / "peers", "--add", *more)


def bounded():
    """Contenders with a bound and those that it is of, with periods of many steps and without:
    (others, K-FAC's)."""
    chosen = {name for name, c in ON_GPUS.items() if any(a.at_most for a in c.against)}
    chosen |= {a.of for name in chosen for a in ON_GPUS[name].against if a.at_most}
    plain = [name for name in ON_GPUS if name in chosen and ON_GPUS[name].period == 1]
    return (plain,
            [DDP, *(name for name in ON_GPUS if name in chosen and ON_GPUS[name].period > 1)])


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    limit_s: int
    what: str
    command: object  # (Setting, seconds that its job may take) -> the command
    # on a GPU; torch for CPUs has no sanitizer
    environment: dict = dataclasses.field(default_factory=dict)


def peers_at(rate, rounds, steps):
    return lambda s, limit: s.peers(limit, "--parts", "measure", "--rates", rate, "--rounds",
                                    rounds, "--steps", steps, "--only", *bounded()[0])


def traced(s, limit):
    names = [name for name in bounded()[0] + bounded()[1][-1:] if name.startswith("linerate ")]
    return s.peers(limit, "--parts", "measure", "--rates", SHAPED, "--rounds", 1, "--steps",
                   2, "--loss-steps", 10, "--only", DDP, *names, "--trace", DDP,
                   *names)


# The most telling first. Ranks write what they have measured when a job's part ends, so jobs are
# short.
STAGES = [
    Stage("check", 30, "what there is: driver, versions, MPS, namespaces",
          lambda s, limit: s.lab("check", limit, "--rate", SHAPED)),
    Stage("smoke", 90, "every strategy next to DDP and to itself on the CPU; host waits by name",
          lambda s, limit: s.program("gpu_smoke.py", limit, s.device)),
    Stage("unshaped", 100, "peers whose bounds are stated, on links that carry what they can; "
                           "DDP's recording and a rank alone", peers_at("unshaped", 4, 8)),
    Stage("shaped", 100, "the same at 10 Gbit/s", peers_at("10Gbit/s", 3, 6)),
    Stage("kfac", 90, "K-FAC next to KAISA at 10 Gbit/s",
          lambda s, limit: s.peers(limit, "--parts", "measure", "--rates", SHAPED,
                                   "--rounds", 2, "--steps", 6, "--only", *bounded()[1])),
    Stage("recordings", 75, "traces of linerate's steps at 10 Gbit/s, and what they say", traced),
    Stage("calibration", 45, "codecs, factors, inverses on the device",
          lambda s, limit: s.peers(limit, "--parts", "calibrate")),
    Stage("sanitizer", 45, "strategies under TORCH_CUDA_SANITIZER=1",
          lambda s, limit: s.program("gpu_smoke.py", limit, s.device, "ddp", "dear", "ddp+topk",
                                     "ddp+powersgd(rank=2)", "ddp+kfac(d, factors=1)"),
          {"TORCH_CUDA_SANITIZER": "1"}),
    Stage("streams", 45, "steps by how all-reduces are enqueued: asyncOp=false, priority",
          lambda s, limit: s.program("gpu_streams.py", limit, s.device, s.model)),
    Stage("ends", 60, "what a user sees when a rank is gone",
          lambda s, limit: s.program("gpu_ends.py", limit, s.device)),
]
LEAST_S = 10  # of a stage that begins
PATIENCE_S = 5  # between asking a stage to end and killing it


def supervise(command, limit_s, environment, path):
    """Runs a command, its output on the terminal and in a file; its exit status, 124 after the
    limit. Whatever it has started ends with it."""
    with path.open("w") as file:
        process = subprocess.Popen([str(c) for c in command], cwd=ROOT, env=environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True, errors="replace")

        def pass_on():
            for line in process.stdout:
                file.write(line)
                file.flush()
                print(line[:240].rstrip("\n"), flush=True)

        reader = threading.Thread(target=pass_on, daemon=True)
        reader.start()
        try:
            status = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            status = 124
            process.terminate()  # gpu-lab removes its links, ends its ranks
            try:
                process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        reader.join(timeout=PATIENCE_S)
        if not reader.is_alive():  # else what it left in a session of its own still holds the pipe
            process.stdout.close()
    return status


def pack(out, folder):
    """What there is so far: traces apart, which are large."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [p for p in sorted(out.rglob("*"))
             if p.is_file() and p.suffix != ".tgz" and "programs" not in p.parts]
    for name, chosen in (("results", [p for p in files if p.suffix != ".gz"]),
                         ("traces", [p for p in files if p.suffix == ".gz"])):
        part = folder / f"{name}.part"
        with tarfile.open(part, "w:gz", compresslevel=1 if name == "traces" else 6) as archive:
            for path in chosen:
                archive.add(path, path.relative_to(out))
        part.replace(folder / f"{name}.tgz")  # a whole one at any time


def outcome_words(status, limit_s):
    return ("done" if status == 0 else f"no end after {limit_s:.0f} s"
            if status == 124 else f"failed with {status}")


def run(o, python_of_the_build, python_with_torch):
    """The stages; the exit status."""
    unknown = [name for name in o.stages if name not in {s.name for s in STAGES}]
    if unknown:
        raise Refused(
            f"--stages: expected some of {' '.join(s.name for s in STAGES)}, found {unknown[0]}")
    begun = time.monotonic()
    setting = Setting(o, python_of_the_build, python_with_torch)
    archive, outcomes = o.archive or setting.out, []
    setting.out.mkdir(parents=True, exist_ok=True)
    for stage in (s for s in STAGES if s.name in o.stages):
        start = time.monotonic()
        limit = min(o.limits * stage.limit_s, 60 * o.minutes - (start - begun) - 2 * PATIENCE_S)
        if limit < LEAST_S:
            outcomes.append((stage.name, None, "left out: no time"))
        else:
            print(f"== {stage.name}: {stage.what} (at most {limit:.0f} s)", flush=True)
            command = stage.command(setting, max(LEAST_S / 2, round(limit - PATIENCE_S)))
            more = stage.environment if o.device == "cuda" else {}
            status = supervise(command, limit, {**setting.environment, **more},
                               setting.out / f"{stage.name}.txt")
            outcomes.append((stage.name, status,
                             f"{outcome_words(status, limit)}, {time.monotonic() - start:.0f} s"))
        about = {"kit": setting.manifest, "device": o.device, "model": o.model,
                 "stages": [dict(zip(("name", "status", "outcome"), one)) for one in outcomes]}
        (setting.out / "kit-run.json").write_text(json.dumps(about, indent=1) + "\n")
        pack(setting.out, archive)
    for name, _, words in outcomes:
        print(f"{name:12} {words}")
    print(f"{time.monotonic() - begun:.0f} s; results in {os.path.relpath(setting.out)}, packed in "
          f"{os.path.relpath(archive)}/results.tgz and traces.tgz")
    return 0 if all(status == 0 for _, status, _ in outcomes) else 1


def say(message):
    print(f"gpu-lab: {message}", file=sys.stderr, flush=True)
