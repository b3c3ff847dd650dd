#!/usr/bin/env python3
"""Checks that every C++ file is exactly what clang-format prints. Exit 77 (skipped) if clang-format
is absent."""
import shutil
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parent.parent
tool = shutil.which("clang-format-14")
if not tool:
    print("skipped: clang-format-14 is not installed (tools/setup installs it)")
    sys.exit(77)
files = [p for folder in ("include", "src", "tests", "bench", "examples")
         for p in (root / folder).rglob("*.[ch]pp")]
result = subprocess.run([tool, "--dry-run", "--Werror", *map(str, files)], capture_output=True,
                        text=True, cwd=root)
wrong = sorted({line.split(":")[0] for line in result.stderr.splitlines() if ": error:" in line})
for name in wrong:
    print(f"{Path(name).relative_to(root) if name.startswith('/') else name}: run `make format`")
print(f"{len(files)} files, {len(wrong)} to format")
sys.exit(1 if result.returncode else 0)
