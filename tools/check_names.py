#!/usr/bin/env python3
"""Constants and types in anonymous namespaces have names that no other source of their folder's module uses there, and no
header declares in a namespace around them.

Unity builds compile several sources as one: a name that stands twice stops the build, but a constant that hides a header's
changes, without a word, what another source computes. Functions are left to the compiler: they are told apart by their
parameters; Highway's kernels are compiled alone. Reads what clang-format leaves at the start of a line. Exit status: the
number of names.
"""
import collections
import re
import subprocess
import sys
from pathlib import Path

root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
NAMES = re.compile(r"\b(k[A-Z]\w*)\b(?=\s*(?:=|\{|\[))")
TYPE = re.compile(r"(?:struct|class|enum class) (\w+)(?=\s*(?:[{:]|final|$))")


def declared(text):
    """(name, namespace, anonymous) of constants and types at the scope of a namespace."""
    space, anonymous = "", False
    for line in text.splitlines():
        if opened := re.match(r"namespace ([\w:]+) \{", line):
            space = opened[1]
        elif line == "namespace {":
            anonymous = True
        elif line.startswith("}  // namespace"):
            anonymous, space = (False, space) if anonymous else (False, "")
        elif line.startswith("constexpr") or line.startswith("inline constexpr") or line.startswith("static constexpr"):
            for name in NAMES.findall(line):
                yield name, space, anonymous
        elif found := TYPE.match(line):
            yield found[1], space, anonymous


def module_of(path):
    """The folder with the CMakeLists.txt that compiles a source."""
    return next(p for p in path.parents if (p / "CMakeLists.txt").exists() or p == root)


def tracked():
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "include", "src", "tests"], cwd=root, check=True, capture_output=True, text=True).stdout
        return [root / name for name in listed.split()]
    return sorted(root.rglob("*"))


def main():
    in_headers, inside = collections.defaultdict(list), collections.defaultdict(list)
    files = [p for p in tracked() if p.suffix in (".cpp", ".hpp") and "HWY_TARGET_INCLUDE" not in p.read_text()]
    for path in files:
        for name, space, anonymous in declared(path.read_text()):
            if anonymous and path.suffix == ".cpp":
                inside[module_of(path), name].append((path, space))
            elif not anonymous and path.suffix == ".hpp":
                in_headers[name].append((path, space))
    problems = []
    for (_, name), places in sorted(inside.items()):
        path, space = places[0]
        others = [other for other, around in in_headers[name]
                  if around and (space == around or space.startswith(around + "::"))]
        others += [other for other, _ in places[1:] if other != path]
        if others:
            problems.append(f"{path.relative_to(root)}: {name} is also declared in {others[0].relative_to(root)}")
    print("\n".join(problems) or f"{len(files)} files, each name once")
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
