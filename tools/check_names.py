#!/usr/bin/env python3
"""Constants and types in anonymous namespaces have names that no other source of their folder's
module uses there, and no header declares in a namespace around them.

Unity builds compile several sources as one: a name that stands twice stops the build, but a
constant that hides a header's changes, without a word, what another source computes. Functions are
left to the compiler: they are told apart by their parameters; Highway's kernels are compiled alone.
Reads what clang-format leaves at the start of a line.

One word, one thing: a type that a header of one module declares has a name that no header of
another module gives to a type, unless SHARED says why. Exit status: the number of names.
"""
import collections
import re
import subprocess
import sys
from pathlib import Path

root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
NAMES = re.compile(r"\b(k[A-Z]\w*)\b(?=\s*(?:=|\{|\[))")
TYPE = re.compile(r"(?:struct|class|enum class) (\w+)(?=\s*(?:[{:]|final|$))")


# Types of several modules with one name, which are one thing in each: which.
OPTIONS = "what the verb's function takes, and what is typed after the verb, which is read into it"
SHARED = {
    "AdviseOptions": OPTIONS,
    "CompareOptions": OPTIONS,
    "ImportOptions": OPTIONS,
    "PlanOptions": OPTIONS,
    "Line": "a + b x, of a collective's size",
    "Point": "of a curve that is drawn; of a recorded lane, where it may wait for others",
    "Range": "two ends: of floats, of what a field may hold, of an epoch's places",
    "Round": "one turn of several: of a method's exchanges, of a contest",
    "Run": "neighbours that belong together: samples, bytes",
    "StepKind": "steps that do the same",
    "Transfer": "something on its way from rank to rank: comm's, and as K-FAC's searches see it",
    "Channel": "the network of a job: comm's carries messages, that of K-FAC's searches says when "
               "they end",
}


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
        elif (line.startswith("constexpr") or line.startswith("inline constexpr")
              or line.startswith("static constexpr")):
            for name in NAMES.findall(line):
                yield name, space, anonymous
        elif found := TYPE.match(line):
            yield found[1], space, anonymous


def module_of(path):
    """The folder with the CMakeLists.txt that compiles a source."""
    return next(p for p in path.parents if (p / "CMakeLists.txt").exists() or p == root)


def top_module(path):
    """src/linerate/MODULE and include/linerate/MODULE are one module."""
    return path.relative_to(root).parts[2]


def shared_types(files):
    """Names of types in headers of several modules, and names in SHARED that are none."""
    modules = collections.defaultdict(dict)
    for path in files:
        if (path.suffix != ".hpp" or path.relative_to(root).parts[0] == "tests"
            or len(path.relative_to(root).parts) < 4):
            continue
        for name, _, anonymous in declared(path.read_text()):
            if not anonymous and not name.startswith("k"):
                modules[name].setdefault(top_module(path), path.relative_to(root))
    for name, places in sorted(modules.items()):
        if len(places) > 1 and name not in SHARED:
            yield (f"{name} is a type of several modules: {', '.join(map(str, places.values()))}; "
                   "give each thing a name of its own, or say in SHARED of tools/check_names.py "
                   "why they are one")
    if (root / "tools/check_names.py").exists():
        for name in sorted(SHARED):
            if len(modules[name]) < 2:
                yield (f"{name} is listed in tools/check_names.py and a type of one module at "
                       "most; leave it out")


def tracked():
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "include", "src", "tests"], cwd=root,
                                check=True, capture_output=True, text=True).stdout
        return [root / name for name in listed.split()]
    return sorted(root.rglob("*"))


def main():
    in_headers, inside = collections.defaultdict(list), collections.defaultdict(list)
    files = [p for p in tracked()
             if p.suffix in (".cpp", ".hpp") and "HWY_TARGET_INCLUDE" not in p.read_text()]
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
            problems.append(f"{path.relative_to(root)}: {name} is also declared in "
                            f"{others[0].relative_to(root)}")
    problems += shared_types(files)
    print("\n".join(problems) or f"{len(files)} files, each name once")
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
