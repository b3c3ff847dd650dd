#!/usr/bin/env python3
"""Runs a .cli transcript and compares output and exit codes: run_transcript.py LINERATE FILE.cli

A transcript holds, in any number:
  # comment                      ignored; holds the sum behind the numbers
  needs PATH                     skips the whole file (exit 77) when PATH, from the project's root,
                                 is absent
  file NAME <<END ... END        makes a file in the scratch folder
  $ linerate VERB ...            run by a shell in the scratch folder ($ROOT is the project's root)
  expected lines                 stdout and stderr together; `...` alone stands for any number of
                                 lines, `<*>` inside a line for anything, and two or more blanks for
                                 two or more: columns are as wide as what was measured
  [exit N]                       the exit code; absent means 0

FILE.cpp is an example: its transcript is what is indented in its head comment, and LINERATE is its
program, ./NAME there.
"""
import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def pattern_of(line):
    """The regular expression of an expected line."""
    columns = [" {2,}".join(map(re.escape, re.split(" {2,}", part))) for part in line.split("<*>")]
    return ".*".join(columns)


def matches(want, got):
    """Whether got (lines) fits want (lines), `...` matching any run of lines."""
    if not want:
        return not got
    if want[0] == "...":
        return any(matches(want[1:], got[i:]) for i in range(len(got) + 1))
    return (bool(got) and re.fullmatch(pattern_of(want[0]), got[0]) is not None
            and matches(want[1:], got[1:]))


def head_comment(source):
    """The transcript in the lines of comment that a source begins with; what is not indented is
    prose."""
    head = itertools.takewhile(lambda line: line.startswith("//"), source.splitlines())
    return [line[5:] if line.startswith("//   ") else "#" for line in head]


def main():
    linerate, transcript = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    root = Path(__file__).resolve().parents[2]
    is_example = transcript.suffix == ".cpp"
    lines = (head_comment(transcript.read_text())
             if is_example else transcript.read_text().splitlines())
    env = dict(os.environ, ROOT=str(root),
               PATH=f"{linerate.parent}:{root / 'tools'}:{os.environ['PATH']}")
    short = runs = i = 0
    with tempfile.TemporaryDirectory() as scratch:
        if is_example:
            Path(scratch, linerate.name).symlink_to(linerate)
        while i < len(lines):
            line = lines[i]
            i += 1
            if line.startswith("needs "):
                if not (root / line.split()[1]).exists():
                    print(f"skipped: {line.split()[1]} is absent")
                    sys.exit(77)
            elif made := re.match(r"file (\S+) <<(\S+)$", line):
                end = lines.index(made[2], i)
                Path(scratch, made[1]).write_text("\n".join(lines[i:end]) + "\n")
                i = end + 1
            elif line.startswith("$ "):
                want, code = [], 0
                while i < len(lines) and not lines[i].startswith(("$ ", "#", "file ")):
                    if ended := re.fullmatch(r"\[exit (\d+)\]", lines[i]):
                        code = int(ended[1])
                    else:
                        want.append(lines[i])
                    i += 1
                while want and not want[-1]:
                    want.pop()
                run = subprocess.run(line[2:], shell=True, executable="/bin/bash", cwd=scratch,
                                     env=env, text=True, timeout=100, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
                runs += 1
                got = run.stdout.rstrip("\n").splitlines()
                if run.returncode != code or not matches(want, got):
                    short += 1
                    print(f"{transcript.name}: {line}\n--- expected [exit {code}]\n"
                          + "\n".join(want) + f"\n--- found [exit {run.returncode}]\n"
                          + "\n".join(got))
    print(f"{transcript.name}: {runs} commands, {short} differ")
    sys.exit(1 if short or not runs else 0)


if __name__ == "__main__":
    main()
