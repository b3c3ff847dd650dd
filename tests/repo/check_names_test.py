#!/usr/bin/env python3
"""tools/check_names.py on made-up trees: what would stop or change a unity build is found, and only
that."""
import unittest

from made_up_tree import printed


def source(name, namespace="linerate::plan"):
    return (f"namespace {namespace} {{\nnamespace {{\n\n{name}\n\n}}  // namespace\n}}  // "
            f"namespace {namespace}\n")


def header(name, namespace="linerate"):
    return f"namespace {namespace} {{\n\n{name}\n\n}}  // namespace {namespace}\n"


class MadeUpTree(unittest.TestCase):
    def problems(self, files):
        lines, status = printed("check_names.py", {"src/plan/CMakeLists.txt": "",
                                                   "src/sim/CMakeLists.txt": "", **files})
        return lines if status else []

    def test_a_constant_of_two_sources_is_found(self):
        files = {"src/plan/a.cpp": source("constexpr int kMost = 1;"),
                 "src/plan/pass/b.cpp": source("constexpr int kMost = 2;")}
        self.assertEqual(self.problems(files),
                         ["src/plan/a.cpp: kMost is also declared in src/plan/pass/b.cpp"])

    def test_a_constant_that_hides_a_headers_is_found(self):
        files = {"src/plan/a.cpp": source("constexpr int kFew = 0, kMost = 1;"),
                 "src/x.hpp": header("inline constexpr int kMost = 2;")}
        self.assertEqual(self.problems(files),
                         ["src/plan/a.cpp: kMost is also declared in src/x.hpp"])

    def test_a_type_of_two_sources_is_found(self):
        files = {"src/plan/a.cpp": source("struct Way {"),
                 "src/plan/b.cpp": source("class Way final {")}
        self.assertEqual(len(self.problems(files)), 1)

    def test_other_modules_and_namespaces_may_use_the_name(self):
        files = {"src/plan/a.cpp": source("constexpr int kMost = 1;"),
                 "src/sim/b.cpp": source("constexpr int kMost = 2;"),
                 "src/y.hpp": header("inline constexpr int kMost = 3;", "linerate::doc")}
        self.assertEqual(self.problems(files), [])

    def test_a_type_of_two_modules_headers_is_found(self):
        files = {"src/linerate/plan/a.hpp": header("struct Way {", "linerate::plan"),
                 "include/linerate/sim/b.hpp": header("class Way final {", "linerate::sim")}
        (problem,) = self.problems(files)
        self.assertIn("Way is a type of several modules", problem)
        self.assertIn("src/linerate/plan/a.hpp", problem)

    def test_one_modules_headers_and_listed_names_pass(self):
        files = {"src/linerate/plan/a.hpp": header("struct Way {", "linerate::plan"),
                 "include/linerate/plan/b.hpp": header("struct Way {", "linerate::plan"),
                 "src/linerate/trace/c.hpp": header("struct Line {", "linerate::trace"),
                 "src/linerate/sim/d.hpp": header("struct Line {", "linerate::sim")}
        self.assertEqual(self.problems(files), [])

    def test_a_kernel_is_compiled_alone(self):
        kernel = "#define HWY_TARGET_INCLUDE\n" + source("constexpr int kMost = 2;")
        self.assertEqual(self.problems({"src/plan/a.cpp": source("constexpr int kMost = 1;"),
                                        "src/plan/k.cpp": kernel}), [])


if __name__ == "__main__":
    unittest.main()
