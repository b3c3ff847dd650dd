#!/usr/bin/env python3
"""cmake/Ccache.cmake: two build folders of one tree share what they compile alike, unity sources
too, and messages name whole paths."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MODULES = Path(__file__).resolve().parents[2] / "cmake"
LISTS = f"""cmake_minimum_required(VERSION 3.25)
project(two LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH {MODULES})
include(Ccache)
add_library(two STATIC src/one.cpp src/two.cpp)
target_include_directories(two PUBLIC ${{PROJECT_SOURCE_DIR}}/src)
set_target_properties(two PROPERTIES UNITY_BUILD ON)
"""


class SharedObjects(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "src").mkdir()
        (self.folder / "CMakeLists.txt").write_text(LISTS)
        (self.folder / "src/both.hpp").write_text("int both();\n")
        for name in ("one", "two"):
            (self.folder / f"src/{name}.cpp").write_text(
                f'#include "both.hpp"\nint {name}() {{ return both(); }}\n')
        own = {name: value for name, value in os.environ.items() if not name.startswith("CCACHE")}
        self.environment = own | {"CCACHE_DIR": str(self.folder / "cache"),
                                  "CCACHE_CONFIGPATH": "/dev/null"}

    def run_here(self, *command):
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True,
                              text=True)
        return done.returncode, done.stdout + done.stderr

    def build(self, name):
        status, said = self.run_here("cmake", "-G", "Ninja", "-S", ".", "-B", f"build/{name}")
        self.assertEqual(status, 0, said)
        return self.run_here("cmake", "--build", f"build/{name}")

    def compiled_and_found(self):
        """Sources that ccache had to compile, and those that it had."""
        counted = dict(re.findall(r"^(\w+)\t(\d+)$", self.run_here("ccache", "--print-stats")[1],
                                  re.M))
        return int(counted["cache_miss"]), int(counted["direct_cache_hit"])

    def test_a_second_build_folder_compiles_nothing(self):
        self.assertEqual(self.build("first")[0], 0)
        self.assertEqual(self.compiled_and_found(), (1, 0))
        self.assertEqual(self.build("second")[0], 0)
        self.assertEqual(self.compiled_and_found(), (1, 1))

    def test_what_changed_is_compiled_in_both(self):
        self.assertEqual(self.build("first")[0], 0)
        (self.folder / "src/both.hpp").write_text("int both(); int more();\n")
        self.assertEqual(self.build("first")[0], 0)
        self.assertEqual(self.build("second")[0], 0)
        self.assertEqual(self.compiled_and_found(), (2, 1))

    def test_an_error_names_the_whole_path(self):
        (self.folder / "src/two.cpp").write_text("int two() { return none(); }\n")
        status, said = self.build("first")
        self.assertNotEqual(status, 0)
        self.assertIn(f"{self.folder}/src/two.cpp:1:", said)


if __name__ == "__main__":
    if not shutil.which("ccache"):
        print("no ccache here")
        sys.exit(77)
    unittest.main()
