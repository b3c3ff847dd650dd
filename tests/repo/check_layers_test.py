#!/usr/bin/env python3
"""tools/check_layers.py on made-up trees: it must find what is wrong there and pass what is right."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools/check_layers.py"
REGISTRY = """
      {{"one",
      {{"two",
"""


class MadeUpTree(unittest.TestCase):
    def check(self, modules, includes, mended_later=(), texts={}):
        """Lines that the checker prints on a tree with these rows and {file: [files that it includes]}."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "tools").mkdir()
            rows = "\n".join(f'"{name}" = {lower}' for name, lower in {"plan": [], **modules}.items())
            (root / "tools/layers.toml").write_text(
                f"[modules]\n{rows}\n[third_party]\n[circles]\nmended_later = {list(mended_later)}\n")
            for name, others in {"plan/registry.cpp": [], **includes}.items():
                path = root / "src/linerate" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                lines = [f'#include "linerate/{other}"' for other in others]
                text = REGISTRY if name == "plan/registry.cpp" else texts.get(name, "")
                path.write_text(text + "\n".join(lines) + "\n")
            run = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)
        lines = run.stdout.splitlines()
        self.assertEqual(run.stderr, "")
        self.assertEqual(run.returncode, 0 if lines[-1].endswith("every arrow points down") else len(lines))
        return lines

    def test_arrows_down_pass(self):
        lines = self.check({"low": [], "high": ["low"]}, {
            "low/a.hpp": [], "low/a.cpp": ["low/a.hpp", "low/b.hpp"], "low/b.hpp": [],
            "high/c.cpp": ["low/a.hpp", "low/b.hpp"]})
        self.assertEqual(lines, ["5 files, every arrow points down"])

    def test_an_arrow_up_is_found(self):
        lines = self.check({"low": [], "high": ["low"]}, {"low/a.hpp": ["high/b.hpp"], "high/b.hpp": []})
        self.assertEqual(lines, ["src/linerate/low/a.hpp:1: low may not include high"])

    def test_a_folder_inside_a_module_has_a_row_of_its_own(self):
        """The module may include its folders; a folder may not include the module, nor a folder beside it."""
        lines = self.check({"m": [], "m/x": [], "m/y": []}, {
            "m/top.cpp": ["m/x/a.hpp", "m/y/b.hpp"], "m/x/a.hpp": [], "m/y/b.hpp": ["m/x/a.hpp"],
            "m/y/c.cpp": ["m/top.hpp"], "m/top.hpp": []})
        self.assertEqual(lines, ["src/linerate/m/y/b.hpp:1: m/y may not include m/x",
                                 "src/linerate/m/y/c.cpp:1: m/y may not include m"])

    def test_a_source_pays_for_what_its_headers_include(self):
        """a.cpp and b.cpp reach LibTorch; c.cpp does not, and a header is no source."""
        lines = self.check({"m": []}, {"m/a.hpp": [], "m/b.hpp": ["m/a.hpp"], "m/a.cpp": ["m/a.hpp"], "m/b.cpp": ["m/b.hpp"],
                                       "m/c.cpp": []}, texts={"m/a.hpp": "#include <ATen/core/Tensor.h>\n"})
        self.assertEqual(lines, ["tools/layers.toml: 2 sources include LibTorch, themselves or through a header; "
                                 "most_sources is 0"])

    def test_a_circle_through_a_source_is_found(self):
        """No header includes itself here, and no compiler complains: a.cpp uses b, and b.hpp needs a.hpp."""
        lines = self.check({"m": []}, {"m/a.hpp": [], "m/a.cpp": ["m/a.hpp", "m/b.hpp"], "m/b.hpp": ["m/a.hpp"]})
        self.assertEqual(lines, ["circle: src/linerate/m/a.cpp:2 includes m/b, src/linerate/m/b.hpp:1 includes m/a"])

    def test_a_circle_of_three_is_printed_whole(self):
        lines = self.check({"m": []}, {"m/a.hpp": ["m/b.hpp"], "m/b.hpp": [], "m/b.cpp": ["m/c.hpp"],
                                       "m/c.hpp": ["m/a.hpp"], "m/d.cpp": ["m/a.hpp"]})
        self.assertEqual(lines, ["circle: src/linerate/m/a.hpp:1 includes m/b, src/linerate/m/b.cpp:1 includes m/c, "
                                 "src/linerate/m/c.hpp:1 includes m/a"])

    def test_two_circles_are_two_lines(self):
        lines = self.check({"m": []}, {"m/a.hpp": [], "m/a.cpp": ["m/b.hpp", "m/c.hpp"],
                                       "m/b.hpp": ["m/a.hpp"], "m/c.hpp": ["m/a.hpp"]})
        self.assertEqual(len(lines), 2)

    def test_a_known_circle_passes_until_it_is_mended(self):
        broken = {"m/a.hpp": ["m/b.hpp"], "m/b.hpp": [], "m/b.cpp": ["m/a.hpp"]}
        self.assertEqual(self.check({"m": []}, broken, ["m/b -> m/a"]), ["4 files, every arrow points down"])
        lines = self.check({"m": []}, {**broken, "m/b.cpp": []}, ["m/b -> m/a"])
        self.assertEqual(lines, ["tools/layers.toml: m/b -> m/a is gone; remove it from mended_later"])


unittest.main()
