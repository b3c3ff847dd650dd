#!/usr/bin/env python3
"""What a build costs: CPU time, wall time and the largest compiler process, by CMake target.

  bench/build/measure.py [--preset release] [--jobs 2] [--keep DIR] [--define NAME=VALUE]...
                         [TARGET...]

Configures the preset in a folder of its own, builds TARGETs (default: all) without ccache, and
prints a line a target, those that took the most CPU time first. CPU time is the compilers' own
(user and system, as the kernel counts it), so that another job on the machine changes it little;
wall time holds for a quiet machine only.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOG = "LINERATE_BUILD_LOG"


def launch(command):
    """Runs one compiler or linker and appends what it took to the log."""
    status = subprocess.run(command).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = command[command.index("-o") + 1] if "-o" in command else "?"
    line = json.dumps({"output": output, "cpu_s": used.ru_utime + used.ru_stime,
                       "kib": used.ru_maxrss})
    with open(os.environ[LOG], "a") as log:
        log.write(line + "\n")  # short enough to be appended whole
    return status


def target_of(output):
    found = re.search(r"CMakeFiles/([^/]+)\.dir/", output)
    return found.group(1) if found else "linked programs"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--preset", default="release")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="build here and leave it")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE",
                        help="of the configuration")
    return parser.parse_args()


def build(arguments, folder, log):
    launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()};--launch"
    configure = ["cmake", "--preset", arguments.preset, "-B", str(folder),
                 f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
                 f"-DCMAKE_CXX_LINKER_LAUNCHER={launcher}", *(f"-D{d}" for d in arguments.define)]
    subprocess.run(configure, cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    command = ["cmake", "--build", str(folder), "-j", str(arguments.jobs)]
    if arguments.targets:
        command += ["--target", *arguments.targets]
    begun = time.monotonic()
    status = subprocess.run(command, env={**os.environ, LOG: str(log)}, stdout=subprocess.PIPE,
                            text=True)
    if status.returncode != 0:
        sys.exit(status.stdout[-4000:])
    return time.monotonic() - begun


def main():
    if sys.argv[1:2] == ["--launch"]:
        sys.exit(launch(sys.argv[2:]))
    arguments = parse_arguments()
    folder = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="linerate-build-"))
    folder = folder.resolve()
    log = folder.parent / (folder.name + ".log")
    folder.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    try:
        wall_s = build(arguments, folder, log)
        rows = collections.defaultdict(lambda: [0, 0.0, 0.0, 0])
        for line in log.read_text().splitlines():
            used = json.loads(line)
            for name in (target_of(used["output"]), "all together"):
                row = rows[name]
                row[0] += 1
                row[1] += used["cpu_s"]
                row[2] = max(row[2], used["cpu_s"])
                row[3] = max(row[3], used["kib"])
        print(f"{'target':<32} {'runs':>5} {'CPU s':>8} {'longest':>8} {'MiB':>6}")
        for name, (runs, cpu_s, longest_s, kib) in sorted(rows.items(), key=lambda row: -row[1][1]):
            print(f"{name:<32} {runs:>5} {cpu_s:>8.1f} {longest_s:>8.1f} {kib / 1024:>6.0f}")
        print(f"wall {wall_s:.0f} s with {arguments.jobs} jobs")
    finally:
        log.unlink(missing_ok=True)
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
