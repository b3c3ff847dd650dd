#!/usr/bin/env python3
"""tools/check_layers.py on made-up trees: it must find what is wrong there and pass what is
right."""
import unittest

from made_up_tree import printed

REGISTRY = """
      {{"one",
      {{"two",
"""


def rows_of(modules):
    """[(row, module)], highest first: each module without a slash one row above the highest that it
    may include."""
    families = {name: [o for o in lower if o in modules and "/" not in o]
                for name, lower in modules.items() if "/" not in name}

    def row(name):
        return max((row(other) + 1 for other in families[name]), default=0)

    return sorted(((row(name), name) for name in families), reverse=True)


def lines_of(modules, includes, mended_later=(), rows=None, readme=None, texts={}):
    """Lines that the checker prints on a tree with these modules and {file: [files that it
    includes]}.

    rows: [(row, module)], absent: each module above those that it may include; readme: the same as
    its table says it, absent: as the rows do.
    """
    modules = {"plan": [], **modules}
    rows = rows_of(modules) if rows is None else rows
    by_row = {row: [m for r, m in rows if r == row] for row, _ in rows}
    files = {"tools/layers.toml": "\n".join(
        ["[rows]", *(f"{row} = {names}" for row, names in by_row.items()),
         "[modules]", *(f'"{name}" = {lower}' for name, lower in modules.items()),
         "[third_party]", "[circles]", f"mended_later = {list(mended_later)}"]),
             "src/README.md": "".join(f"| {row} | `{module}` | this | that |\n" for row, module
                                      in (rows if readme is None else readme))}
    for name, others in {"plan/registry.cpp": [], **includes}.items():
        text = REGISTRY if name == "plan/registry.cpp" else texts.get(name, "")
        files[f"src/linerate/{name}"] = text + "".join(f'#include "linerate/{other}"\n'
                                                       for other in others)
    lines, status = printed("check_layers.py", files)
    assert status == (0 if lines[-1].endswith("every arrow points down") else len(lines)), lines
    return lines


TABLE, PAGE, PASSED = "tools/layers.toml: ", "src/README.md: ", " files, every arrow points down"
UP = {"low/a.hpp": ["high/b.hpp"], "high/b.hpp": []}
# m includes middle, which reads with m/input; m/input on m would close a circle.
OWN_ROW = dict(includes={"m/a.hpp": ["middle/b.hpp"], "middle/b.hpp": ["m/input/c.hpp"],
                         "m/input/c.hpp": []},
               rows=[(2, "m"), (1, "middle"), (0, "plan"), (0, "m/input")])
EVERYTHING = dict(includes={"low/a.hpp": [], "top/b.hpp": ["low/a.hpp"]},
                  rows=[(1, "top"), (0, "plan"), (0, "low")])
ONE = dict(modules={"m": []}, includes={"m/a.hpp": []})
ROWS = [(1, "b"), (1, "a"), (0, "plan")]
TWO = dict(modules={"a": [], "b": []}, includes={"a/x.hpp": []}, rows=ROWS)
KNOWN = dict(modules={"m": []}, mended_later=["m/b -> m/a"])
# What is looked at: the tree, and what is printed.
CASES = {
    "arrows down": (dict(modules={"low": [], "high": ["low"]}, includes={
        "low/a.hpp": [], "low/a.cpp": ["low/a.hpp", "low/b.hpp"], "low/b.hpp": [],
        "high/c.cpp": ["low/a.hpp", "low/b.hpp"]}), ["5" + PASSED]),
    "an arrow up": (dict(modules={"low": [], "high": ["low"]}, includes=UP),
                    ["src/linerate/low/a.hpp:1: low may not include high"]),
    # Neither the includes nor a circle show it: the table allows what the rows do not.
    "a table that points up": (
        dict(modules={"low": ["high"], "high": []}, includes=UP,
             rows=[(1, "high"), (0, "plan"), (0, "low")]),
        [TABLE + "low (row 0) may not include high (row 1)"]),
    "a table that points sideways": (
        dict(modules={"left": [], "right": ["left"]},
             includes={"left/a.hpp": [], "right/b.hpp": ["left/a.hpp"]},
             rows=[(0, "plan"), (0, "left"), (0, "right")]),
        [TABLE + "right (row 0) may not include left (row 0)"]),
    "a folder keeps to its module's row": (
        dict(modules={"m": [], "m/x": ["m", "high"], "high": []},
             includes={"m/x/a.hpp": ["high/b.hpp"], "high/b.hpp": []},
             rows=[(1, "high"), (0, "plan"), (0, "m")]),
        [TABLE + "m/x (row 0) may not include high (row 1)"]),
    "a folder with a row of its own": (
        dict(modules={"m": ["m/input", "middle"], "m/input": [], "middle": ["m/input"]}, **OWN_ROW),
        ["4" + PASSED]),
    "such a folder that includes its module": (
        dict(modules={"m": ["m/input", "middle"], "m/input": ["m"], "middle": ["m/input"]},
             **OWN_ROW),
        [TABLE + "m/input (row 0) may not include m (row 2)",
         TABLE + "cycle m -> m/input -> m"]),
    "the highest row includes everything": (
        dict(modules={"low": [], "top": ["*"]}, **EVERYTHING), ["3" + PASSED]),
    "a lower row includes everything": (
        dict(modules={"low": ["*"], "top": ["low"]}, **EVERYTHING),
        [TABLE + "low (row 0) may not include everything"]),
    "a module without a row": (dict(**ONE, rows=[(0, "plan")]),
                               [TABLE + "m is in 0 rows, expected one"]),
    "a module of two rows": (dict(**ONE, rows=[(1, "m"), (0, "plan"), (0, "m")]),
                             [TABLE + "m is in 2 rows, expected one"]),
    "a row of no module": (dict(**ONE, rows=[(0, "plan"), (0, "m"), (0, "gone")]),
                           [TABLE + "rows: gone is no module"]),
    "rows, the lowest first": (
        dict(modules={"high": []}, includes={"high/a.hpp": []}, rows=[(0, "plan"), (1, "high")]),
        [TABLE + "rows: the highest one comes first"]),
    "a page in another order": (dict(**TWO, readme=[(1, "a"), (1, "b"), (0, "plan")]),
                                [PAGE + "expected b of row 1, found a of row 1"]),
    "a page with another row": (dict(**TWO, readme=[(1, "b"), (1, "a"), (1, "plan")]),
                                [PAGE + "expected plan of row 0, found plan of row 1"]),
    "a page that lacks a module": (dict(**TWO, readme=[(1, "b"), (1, "a")]),
                                   [PAGE + "expected plan of row 0, found the end"]),
    "a page that says it twice": (dict(**TWO, readme=[*ROWS, (0, "plan")]),
                                  [PAGE + "expected the end, found plan of row 0"]),
    # The module may include its folders; a folder may not include the module, nor another folder.
    "a folder that includes another, and its module": (
        dict(modules={"m": [], "m/x": [], "m/y": []}, includes={
            "m/top.cpp": ["m/x/a.hpp", "m/y/b.hpp"], "m/x/a.hpp": [], "m/y/b.hpp": ["m/x/a.hpp"],
            "m/y/c.cpp": ["m/top.hpp"], "m/top.hpp": []}),
        ["src/linerate/m/y/b.hpp:1: m/y may not include m/x",
         "src/linerate/m/y/c.cpp:1: m/y may not include m"]),
    # a.cpp and b.cpp reach LibTorch; c.cpp does not, and a header is no source.
    "sources that pay for what headers include": (
        dict(modules={"m": []}, includes={"m/a.hpp": [], "m/b.hpp": ["m/a.hpp"], "m/a.cpp":
                                              ["m/a.hpp"], "m/b.cpp": ["m/b.hpp"], "m/c.cpp": []},
             texts={"m/a.hpp": "#include <ATen/core/Tensor.h>\n"}),
        [TABLE + "2 sources include LibTorch, themselves or through a header; most_sources is 0"]),
    "all of LibTorch": (
        dict(modules={"m": []}, includes={"m/a.hpp": [], "m/b.hpp": []},
             texts={"m/a.hpp": "#include <torch/torch.h>\n",
                    "m/b.hpp": "#include <torch/types.h>\n"}),
        ["src/linerate/m/a.hpp: <torch/torch.h> is for examples; include what is used, as "
         "<torch/nn/modules/linear.h>"]),
    # No header includes itself, and no compiler complains: a.cpp uses b, and b.hpp needs a.hpp.
    "a circle through a source": (
        dict(modules={"m": []}, includes={"m/a.hpp": [], "m/a.cpp": ["m/a.hpp", "m/b.hpp"],
                                          "m/b.hpp": ["m/a.hpp"]}),
        ["circle: src/linerate/m/a.cpp:2 includes m/b, src/linerate/m/b.hpp:1 includes m/a"]),
    "a circle of three": (
        dict(modules={"m": []},
             includes={"m/a.hpp": ["m/b.hpp"], "m/b.hpp": [], "m/b.cpp": ["m/c.hpp"],
                       "m/c.hpp": ["m/a.hpp"], "m/d.cpp": ["m/a.hpp"]}),
        ["circle: src/linerate/m/a.hpp:1 includes m/b, src/linerate/m/b.cpp:1 includes m/c, "
         "src/linerate/m/c.hpp:1 includes m/a"]),
    "two circles": (
        dict(modules={"m": []}, includes={"m/a.hpp": [], "m/a.cpp": ["m/b.hpp", "m/c.hpp"],
                                          "m/b.hpp": ["m/a.hpp"], "m/c.hpp": ["m/a.hpp"]}),
        ["circle: src/linerate/m/a.cpp:1 includes m/b, src/linerate/m/b.hpp:1 includes m/a",
         "circle: src/linerate/m/a.cpp:2 includes m/c, src/linerate/m/c.hpp:1 includes m/a"]),
    "a known circle": (dict(**KNOWN, includes={"m/a.hpp": ["m/b.hpp"], "m/b.hpp": [],
                                               "m/b.cpp": ["m/a.hpp"]}), ["4" + PASSED]),
    "a known circle that was mended": (
        dict(**KNOWN, includes={"m/a.hpp": ["m/b.hpp"], "m/b.hpp": [], "m/b.cpp": []}),
        [TABLE + "m/b -> m/a is gone; remove it from mended_later"]),
}


class MadeUpTree(unittest.TestCase):
    def test_what_is_printed(self):
        for case, (tree, wanted) in CASES.items():
            with self.subTest(case):
                self.assertEqual(lines_of(**tree), wanted)


unittest.main()
