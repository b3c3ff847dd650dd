#!/usr/bin/env python3
"""Checks a wheel: it holds licences and types, and every binary in it needs only libraries that lie
in the wheel or are the C and C++ run time. Usage: check_wheel.py WHEEL. Needs readelf."""
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RUN_TIME = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-x86-64|ld-linux-aarch64)\.so")
EXPECTED = ["linerate/_core.pyi", "linerate/py.typed", "licenses/LICENSE",
            "licenses/python/licenses/fmt.txt"]


def main(wheel):
    problems = []
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        names = archive.namelist()
        problems += [f"no {expected}" for expected in EXPECTED
                     if not any(name.endswith(expected) for name in names)]
        own = {Path(name).name for name in names}
        for name in names:
            path = Path(folder) / name
            if path.is_dir() or path.read_bytes()[:4] != b"\x7fELF":
                continue
            dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True,
                                     check=True).stdout
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
            print(f"{name}: {path.stat().st_size / 1e6:.2f} MB, needs {', '.join(needed)}")
            problems += [f"{name} needs {library}" for library in needed
                         if library not in own and not RUN_TIME.match(library)]
    print("\n".join(problems)
          or f"{Path(wheel).name}: {Path(wheel).stat().st_size / 1e6:.2f} MB, whole")
    return len(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
