#!/usr/bin/env python3
"""Checks that includes point down only: tools/layers.toml against every #include and every CMake
DEPS.

Includes between modules follow the table, the table follows its rows, and src/README.md follows
both. Between files: x.hpp and x.cpp are one unit, and units never include each other in a circle.
Also that no file but the registry compares the name of a strategy. Prints one line a violation
("src/linerate/doc/workload.cpp:2: doc may not include sim") and exits with their number.

    tools/check_layers.py [ROOT]    ROOT: another tree than the one it lies in
"""
import collections
import itertools
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent).resolve()
TABLE = tomllib.loads((ROOT / "tools/layers.toml").read_text())
MODULES, OUTSIDE = TABLE["modules"], TABLE["third_party"]
ROWS = [(int(row), module) for row, modules in TABLE["rows"].items() for module in modules]
MENDED_LATER = TABLE.get("circles", {}).get("mended_later", [])
MOST_TORCH_SOURCES = TABLE.get("torch", {}).get("most_sources", 0)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
# A module's public headers lie in the first, its sources and private headers in the second.
BASES = [ROOT / "include/linerate", ROOT / "src/linerate"]


def below_base(path):
    return str(path.relative_to(next(base for base in BASES if path.is_relative_to(base))))


def module_of(path):
    """The longest module name that is a prefix: comm/mpi before comm."""
    parts = path.split("/")
    for n in (2, 1):
        if len(parts) > n and "/".join(parts[:n]) in MODULES:
            return "/".join(parts[:n])
    return None


def may_include(module, other):
    allowed = MODULES[module]
    return other == module or "*" in allowed or other in allowed or other.split("/")[0] == module


def check_file(path):
    module = module_of(below_base(path))
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header, where = match[1], f"{path.relative_to(ROOT)}:{number}"
        if header.startswith("linerate/"):
            other = module_of(header.removeprefix("linerate/"))
            if other and not may_include(module, other):
                yield f"{where}: {module} may not include {other}"
        for prefix, owners in OUTSIDE.items():
            if (header.startswith(prefix)
                and not any(module == o or module.startswith(o + "/") for o in owners)):
                yield f"{where}: only {', '.join(owners)} may include {header}"


def check_cmake(path):
    module = str(path.parent.relative_to(ROOT / "src/linerate"))
    if module not in MODULES:
        return
    folders = {name.replace("/", "_"): name for name in MODULES}  # comm_mpi lies in comm/mpi
    for call in re.findall(r"linerate_module\((.*?)\n?\)", path.read_text(), re.S):
        deps = re.search(r"\bDEPS\b(.*?)(?:\b(?:SOURCES|EXCEPT|LIBRARIES|PRIVATE_LIBRARIES)\b|$)",
                         call, re.S)
        for dep in deps[1].split() if deps else []:
            if not may_include(module, folders.get(dep, dep)):
                yield f"{path.relative_to(ROOT)}: {module} may not depend on {dep}"


def check_rows():
    """Every module has one row and may include lower rows alone. A folder inside a module lies in
    its row unless it has one of its own."""
    row_of = {module: row for row, module in ROWS}
    if ROWS != sorted(ROWS, key=lambda entry: -entry[0]):
        yield "tools/layers.toml: rows: the highest one comes first"
    placed = collections.Counter(module for _, module in ROWS)
    for module in sorted({*placed, *(m for m in MODULES if "/" not in m)}):
        if module not in MODULES:
            yield f"tools/layers.toml: rows: {module} is no module"
        elif placed[module] != 1:
            yield f"tools/layers.toml: {module} is in {placed[module]} rows, expected one"

    def home(module):
        return module if module in row_of else module.split("/")[0]

    for module, others in MODULES.items():
        row = row_of.get(home(module))
        if "*" in others and row != max(row_of.values()):
            yield f"tools/layers.toml: {module} (row {row}) may not include everything"
        for other in others:
            other_row = row_of.get(home(other))
            if home(other) != home(module) and None not in (row, other_row) and other_row >= row:
                yield (f"tools/layers.toml: {module} (row {row}) may not include {other} (row "
                       f"{other_row})")


def line_of(entry):
    return f"{entry[1]} of row {entry[0]}" if entry else "the end"


def check_readme():
    """The table of src/README.md is that of the rows: every module once, in the same order."""
    path = ROOT / "src/README.md"
    told = [(int(row), module)
            for row, module in re.findall(r"^\| (\d+) \| `([^`]+)` \|", path.read_text(), re.M)]
    for expected, found in itertools.zip_longest(ROWS, told):
        if expected != found:
            yield f"src/README.md: expected {line_of(expected)}, found {line_of(found)}"
            return


def check_cycles():
    done, path = set(), []

    def visit(module):
        if module in path:
            yield "tools/layers.toml: cycle " + " -> ".join([*path[path.index(module):], module])
        elif module not in done:
            path.append(module)
            for other in MODULES[module]:
                if other != "*":
                    yield from visit(other)
            done.add(path.pop())

    for module in MODULES:
        yield from visit(module)


def unit_arrows(files):
    """{unit: {unit it includes: "file:line"}}; a unit is a path below linerate/ without its
    suffix."""
    units = {str(Path(below_base(f)).with_suffix("")): {} for f in files}
    for path in files:
        unit = str(Path(below_base(path)).with_suffix(""))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            other = match and str(Path(match[1].removeprefix("linerate/")).with_suffix(""))
            if other in units and other != unit:
                units[unit].setdefault(other, f"{path.relative_to(ROOT)}:{number}")
    return units


def shortest_circle(unit, arrows):
    """The units on the shortest way from a unit back to itself; empty if there is none."""
    before, queue = {}, collections.deque([unit])
    while queue:
        at = queue.popleft()
        for other in sorted(arrows[at]):
            if other == unit:
                circle = [at]
                while circle[-1] != unit:
                    circle.append(before[circle[-1]])
                return circle[::-1]
            if other not in before:
                before[other] = at
                queue.append(other)
    return []


def check_circles(files):
    """Units that include each other can only be read, tested and moved together. One line a circle,
    until none is left."""
    arrows = unit_arrows(files)
    for arrow in MENDED_LATER:
        unit, other = arrow.split(" -> ")
        if arrows.get(unit, {}).pop(other, None) is None:
            yield f"tools/layers.toml: {arrow} is gone; remove it from mended_later"
    for unit in sorted(arrows):
        while circle := shortest_circle(unit, arrows):
            steps = [f"{arrows[a].pop(b)} includes {b}"
                     for a, b in zip(circle, circle[1:] + circle[:1])]
            yield "circle: " + ", ".join(steps)


def includes_torch(path, known):
    """Whether a file includes LibTorch, itself or through headers of this tree."""
    if path not in known:
        known[path] = False  # while this header is being looked at: a circle adds nothing
        headers = [m[1] for line in path.read_text().splitlines() if (m := INCLUDE.match(line))]
        ours = [folder / h for h in headers
                for folder in (path.parent, ROOT / "include", ROOT / "src", ROOT / "tests")
                if (folder / h).is_file()]
        known[path] = (any(h.startswith(("torch/", "ATen/")) for h in headers)
                       or any(includes_torch(h.resolve(), known) for h in ours))
    return known[path]


def check_torch_sources():
    """LibTorch's headers cost about ten seconds a source, so the number of those that pay is
    bounded. All of them cost half as much again as a layer and an optimizer, and only what users
    read includes them."""
    known = {}
    sources = [p for folder in ("src", "tests", "bench", "examples")
               for p in ROOT.glob(f"{folder}/**/*.cpp") if includes_torch(p.resolve(), known)]
    # projects of users
    sources = [p for p in sources if not p.is_relative_to(ROOT / "tests/package")]
    if len(sources) > MOST_TORCH_SOURCES:
        yield (f"tools/layers.toml: {len(sources)} sources include LibTorch, themselves "
               f"or through a header; most_sources is {MOST_TORCH_SOURCES}")
    homes = ("kfac", "torch_adapter", "torch_codecs", "simulated_device", "zoo", "comm/c10d")
    for p in sources:
        if p.is_relative_to(ROOT / "tests") and not any(
                p.is_relative_to(ROOT / "tests" / home) for home in homes):
            yield (f"{p.relative_to(ROOT)}: LibTorch tests live in "
                   + ", ".join(f"tests/{home}" for home in homes))
    for p in sorted(f for folder in ("src", "tests", "bench")
                    for f in ROOT.glob(f"{folder}/**/*.[ch]pp")):
        if ("#include <torch/torch.h>" in p.read_text()
            and not p.is_relative_to(ROOT / "tests/package")):
            yield (f"{p.relative_to(ROOT)}: <torch/torch.h> is for examples; include what "
                   "is used, as <torch/nn/modules/linear.h>")


def check_strategy_names(files):
    """What depends on a strategy is in the registry's lines: no other file compares its name."""
    registry = ROOT / "src/linerate/plan/registry.cpp"
    names = re.findall(r'{"([a-z-]+)",$', registry.read_text(), re.M)
    for path in ROOT.glob("src/linerate/plan/exchange/*.cpp"):
        text = path.read_text()
        own = re.findall(r'return {\s*"([a-z-]+)",$', text, re.M)
        names += own
        if len(own) != text.count("ExchangeLine strategy_"):
            yield (f"{path.relative_to(ROOT)}: expected a line that begins with the "
                   f"strategy's name, found {len(own)}")
    compared = re.compile(r'[=!]= *"(?:%s)"|"(?:%s)" *[=!]=' % (("|".join(names),) * 2))
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if path != registry and compared.search(line):
                yield (f"{path.relative_to(ROOT)}:{number}: compares a strategy's name; "
                       "ask the registry (plan/exchange.hpp)")


def check_modules(files):
    for path in files:
        if module_of(below_base(path)) is None:
            yield f"{path.relative_to(ROOT)}: its folder is not in tools/layers.toml"
        else:
            yield from check_file(path)
    for path in ROOT.glob("src/linerate/**/CMakeLists.txt"):
        yield from check_cmake(path)


files = sorted(path for base in BASES for suffix in ("hpp", "cpp")
               for path in base.glob(f"*/**/*.{suffix}"))
problems = [*check_rows(), *check_readme(), *check_cycles(), *check_modules(files),
            *check_circles(files), *check_torch_sources(), *check_strategy_names(files)]
print("\n".join(problems) or f"{len(files)} files, every arrow points down")
sys.exit(min(len(problems), 99))
