#!/usr/bin/env python3
"""Runs the page's script on charts and on the figures of a page of sample documents:
page_script_test.py LINERATE

Exit 77 (skipped) where Node.js is absent; what the script draws from is checked in C++ as well
(sections_test.cpp)."""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sample_documents import write_all


def main():
    linerate = Path(sys.argv[1]).resolve()
    node = shutil.which("node") or shutil.which("nodejs")
    if not node:
        print("skipped: no Node.js here (apt-get install nodejs)")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        subprocess.run([linerate, "report", *write_all(Path(scratch)), "-o", page], check=True)
        return subprocess.run([node, Path(__file__).with_suffix(".js"), page]).returncode


sys.exit(main())
