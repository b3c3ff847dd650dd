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


class MadeUpTree(unittest.TestCase):
    def check(self, modules, includes, mended_later=(), rows=None, readme=None, texts={}):
        """Lines that the checker prints on a tree with these modules and {file: [files that it
        includes]}.

        rows: [(row, module)], absent: each module above those that it may include; readme: the same
        as its table says it, absent: as the rows do.
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
        self.assertEqual(status, 0 if lines[-1].endswith("every arrow points down") else len(lines))
        return lines

    def test_arrows_down_pass(self):
        lines = self.check({"low": [], "high": ["low"]}, {
            "low/a.hpp": [], "low/a.cpp": ["low/a.hpp", "low/b.hpp"], "low/b.hpp": [],
            "high/c.cpp": ["low/a.hpp", "low/b.hpp"]})
        self.assertEqual(lines, ["5 files, every arrow points down"])

    def test_an_arrow_up_is_found(self):
        lines = self.check({"low": [], "high": ["low"]},
                           {"low/a.hpp": ["high/b.hpp"], "high/b.hpp": []})
        self.assertEqual(lines, ["src/linerate/low/a.hpp:1: low may not include high"])

    def test_a_table_that_points_up_is_found(self):
        """Neither the includes nor a circle show it: the table allows what the rows do not."""
        lines = self.check({"low": ["high"], "high": []},
                           {"low/a.hpp": ["high/b.hpp"], "high/b.hpp": []},
                           rows=[(1, "high"), (0, "plan"), (0, "low")])
        self.assertEqual(lines, ["tools/layers.toml: low (row 0) may not include high (row 1)"])

    def test_a_table_that_points_sideways_is_found(self):
        lines = self.check({"left": [], "right": ["left"]},
                           {"left/a.hpp": [], "right/b.hpp": ["left/a.hpp"]},
                           rows=[(0, "plan"), (0, "left"), (0, "right")])
        self.assertEqual(lines, ["tools/layers.toml: right (row 0) may not include left (row 0)"])

    def test_a_folder_of_a_module_keeps_to_the_modules_row(self):
        lines = self.check({"m": [], "m/x": ["m", "high"], "high": []},
                           {"m/x/a.hpp": ["high/b.hpp"], "high/b.hpp": []},
                           rows=[(1, "high"), (0, "plan"), (0, "m")])
        self.assertEqual(lines, ["tools/layers.toml: m/x (row 0) may not include high (row 1)"])

    def test_a_folder_may_have_a_row_of_its_own(self):
        """m includes middle, which reads with m/input; m/input on m would close a circle."""
        modules = {"m": ["m/input", "middle"], "m/input": [], "middle": ["m/input"]}
        files = {"m/a.hpp": ["middle/b.hpp"], "middle/b.hpp": ["m/input/c.hpp"],
                 "m/input/c.hpp": []}
        rows = [(2, "m"), (1, "middle"), (0, "plan"), (0, "m/input")]
        self.assertEqual(self.check(modules, files, rows=rows),
                         ["4 files, every arrow points down"])
        self.assertEqual(self.check({**modules, "m/input": ["m"]}, files, rows=rows)[0],
                         "tools/layers.toml: m/input (row 0) may not include m (row 2)")

    def test_only_the_highest_row_may_include_everything(self):
        files = {"low/a.hpp": [], "top/b.hpp": ["low/a.hpp"]}
        rows = [(1, "top"), (0, "plan"), (0, "low")]
        self.assertEqual(self.check({"low": [], "top": ["*"]}, files, rows=rows),
                         ["3 files, every arrow points down"])
        self.assertEqual(self.check({"low": ["*"], "top": ["low"]}, files, rows=rows),
                         ["tools/layers.toml: low (row 0) may not include everything"])

    def test_a_module_has_one_row(self):
        files = {"m/a.hpp": []}
        self.assertEqual(self.check({"m": []}, files, rows=[(0, "plan")]),
                         ["tools/layers.toml: m is in 0 rows, expected one"])
        self.assertEqual(self.check({"m": []}, files, rows=[(1, "m"), (0, "plan"), (0, "m")]),
                         ["tools/layers.toml: m is in 2 rows, expected one"])
        self.assertEqual(self.check({"m": []}, files, rows=[(0, "plan"), (0, "m"), (0, "gone")]),
                         ["tools/layers.toml: rows: gone is no module"])

    def test_rows_stand_highest_first(self):
        lines = self.check({"high": []}, {"high/a.hpp": []}, rows=[(0, "plan"), (1, "high")])
        self.assertEqual(lines, ["tools/layers.toml: rows: the highest one comes first"])

    def test_the_page_has_the_modules_of_the_rows_in_their_order(self):
        rows = [(1, "b"), (1, "a"), (0, "plan")]
        for readme, line in [
                ([(1, "a"), (1, "b"), (0, "plan")],
                 "src/README.md: expected b of row 1, found a of row 1"),
                ([(1, "b"), (1, "a"), (1, "plan")],
                 "src/README.md: expected plan of row 0, found plan of row 1"),
                ([(1, "b"), (1, "a")], "src/README.md: expected plan of row 0, found the end"),
                ([*rows, (0, "plan")], "src/README.md: expected the end, found plan of row 0")]:
            with self.subTest(line):
                self.assertEqual(self.check({"a": [], "b": []}, {"a/x.hpp": []}, rows=rows,
                                            readme=readme), [line])

    def test_a_folder_inside_a_module_has_a_line_of_its_own(self):
        """The module may include its folders; a folder may not include the module, nor a folder
        beside it."""
        lines = self.check({"m": [], "m/x": [], "m/y": []}, {
            "m/top.cpp": ["m/x/a.hpp", "m/y/b.hpp"], "m/x/a.hpp": [], "m/y/b.hpp": ["m/x/a.hpp"],
            "m/y/c.cpp": ["m/top.hpp"], "m/top.hpp": []})
        self.assertEqual(lines, ["src/linerate/m/y/b.hpp:1: m/y may not include m/x",
                                 "src/linerate/m/y/c.cpp:1: m/y may not include m"])

    def test_a_source_pays_for_what_its_headers_include(self):
        """a.cpp and b.cpp reach LibTorch; c.cpp does not, and a header is no source."""
        lines = self.check({"m": []}, {"m/a.hpp": [], "m/b.hpp": ["m/a.hpp"], "m/a.cpp":
                                           ["m/a.hpp"], "m/b.cpp": ["m/b.hpp"], "m/c.cpp": []},
                           texts={"m/a.hpp": "#include <ATen/core/Tensor.h>\n"})
        self.assertEqual(lines, ["tools/layers.toml: 2 sources include LibTorch, themselves or "
                                 "through a header; most_sources is 0"])

    def test_all_of_libtorch_is_for_examples(self):
        lines = self.check({"m": []}, {"m/a.hpp": [], "m/b.hpp": []},
                           texts={"m/a.hpp": "#include <torch/torch.h>\n",
                                  "m/b.hpp": "#include <torch/types.h>\n"})
        self.assertEqual(lines, ["src/linerate/m/a.hpp: <torch/torch.h> is for examples; include "
                                 "what is used, as <torch/nn/modules/linear.h>"])

    def test_a_circle_through_a_source_is_found(self):
        """No header includes itself here, and no compiler complains: a.cpp uses b, and b.hpp needs
        a.hpp."""
        lines = self.check({"m": []}, {"m/a.hpp": [], "m/a.cpp": ["m/a.hpp", "m/b.hpp"],
                                       "m/b.hpp": ["m/a.hpp"]})
        self.assertEqual(lines, ["circle: src/linerate/m/a.cpp:2 includes m/b, "
                                 "src/linerate/m/b.hpp:1 includes m/a"])

    def test_a_circle_of_three_is_printed_whole(self):
        lines = self.check({"m": []},
                           {"m/a.hpp": ["m/b.hpp"], "m/b.hpp": [], "m/b.cpp": ["m/c.hpp"],
                            "m/c.hpp": ["m/a.hpp"], "m/d.cpp": ["m/a.hpp"]})
        self.assertEqual(lines,
                         ["circle: src/linerate/m/a.hpp:1 includes m/b, src/linerate/m/b.cpp:1 "
                          "includes m/c, src/linerate/m/c.hpp:1 includes m/a"])

    def test_two_circles_are_two_lines(self):
        lines = self.check({"m": []}, {"m/a.hpp": [], "m/a.cpp": ["m/b.hpp", "m/c.hpp"],
                                       "m/b.hpp": ["m/a.hpp"], "m/c.hpp": ["m/a.hpp"]})
        self.assertEqual(len(lines), 2)

    def test_a_known_circle_passes_until_it_is_mended(self):
        broken = {"m/a.hpp": ["m/b.hpp"], "m/b.hpp": [], "m/b.cpp": ["m/a.hpp"]}
        self.assertEqual(self.check({"m": []}, broken, ["m/b -> m/a"]),
                         ["4 files, every arrow points down"])
        lines = self.check({"m": []}, {**broken, "m/b.cpp": []}, ["m/b -> m/a"])
        self.assertEqual(lines,
                         ["tools/layers.toml: m/b -> m/a is gone; remove it from mended_later"])


unittest.main()
