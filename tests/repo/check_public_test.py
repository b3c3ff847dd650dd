#!/usr/bin/env python3
"""tools/check_public.py on made-up trees: what breaks a promise of a public header is found, and
only that."""
import unittest

from made_up_tree import printed


def header(body, comment="// About it."):
    return (f"{comment}\n#pragma once\n\nnamespace linerate {{\n\n{body}\n\n}}  // namespace "
            "linerate\n")


class MadeUpTree(unittest.TestCase):
    def problems(self, files):
        lines, status = printed("check_public.py", {f"include/linerate/{name}": text
                                                    for name, text in files.items()})
        return lines if status else []

    def expect(self, body, *wanted, name="core/a.hpp", **more):
        """The problems of one header, without its name and line."""
        found = [problem.split(": ", 1)[1]
                 for problem in self.problems({name: header(body, **more)})]
        self.assertEqual(found, list(wanted), body)

    def test_a_tree_without_public_headers_is_not_passed(self):
        self.assertEqual(self.problems({"a.txt": ""}), ["no public headers"])

    def test_third_party_names_are_found_but_not_in_comments(self):
        for value, name in (("nlohmann::json", "nlohmann::"), ("at::Tensor*", "at::"),
                            ("MPI_Comm", "MPI_Comm")):
            self.expect(f"struct A {{ {value} value; }};", f"a public header may not name {name}")
        self.expect("// as nlohmann::json does, and at::Tensor\nstruct A {};")

    def test_libtorch_and_mpi_are_known_in_their_folders_alone(self):
        torch, mpi = "struct A { at::Tensor* value; };", "struct A { MPI_Comm value; };"
        self.expect(torch, name="torch_adapter/a.hpp")
        self.expect(mpi, name="comm/mpi/a.hpp")
        self.expect(mpi, "a public header may not name MPI_Comm", name="torch_adapter/a.hpp")

    def test_a_class_with_functions_says_its_thread_safety(self):
        said = "/// Thread safety: any thread.\n"
        for what in ("class A {\n public:\n  int count() const;\n};",
                     "struct A {\n  double a = 0;\n  bool any() const { return a > 0; }\n};",
                     "class A {\n public:\n  explicit A(int x);\n};"):
            self.expect(what, "A does not say its thread safety")
            self.expect("/// A thing.\n" + said + what)
            self.expect("/// Of T.\n" + said + "template <typename T>\n" + what)
            self.expect(what, comment="// About it.\n// Thread safety: values.")
        self.expect("struct A {\n  double a = 0;\n  std::vector<int> b = {};\n};")
        self.expect("/// A thing.\n\nclass A {\n public:\n  int count() const;\n  class B {\n   "
                    "public:\n    int n();\n  };\n};",
                    "A does not say its thread safety", "B does not say its thread safety")

    def test_dropped_results_are_found(self):
        self.expect("int parse(std::string_view text);",
                    "parse() returns a value and is not [[nodiscard]]")
        self.expect("constexpr std::string_view name_of(int x) { return {}; }",
                    "name_of() returns a value and is not [[nodiscard]]")
        self.expect("[[nodiscard]] int parse(std::string_view text);\nvoid save(int x);\n"
                    "[[noreturn]] void fail();")
        work = ("/// Thread safety: one.\nclass A {\n public:\n  %svirtual WorkPtr all_reduce(int "
                "x) = 0;\n};")
        self.expect(work % "", "all_reduce() returns a handle and is not [[nodiscard]]")
        self.expect(work % "[[nodiscard]] ")

    def test_raw_memory_has_its_type(self):
        wrong = "take() takes raw memory without its element type, or with a default one"
        self.expect("void take(void* memory, int count);", wrong)
        self.expect("void take(const void* memory, int count, DType type = DType::f32);", wrong)
        self.expect("void take(const void* memory,\n          int count, DType type);\n"
                    "void give(DType type, void* memory);")

    def test_users_are_not_asked_for_types_that_are_not_public(self):
        def_of, wrong = ("struct Hidden;\n",
                         "Hidden is defined in no public header, and users need it here")
        a_class = def_of + "/// Thread safety: a value.\nclass A {\n"
        for body, *wanted in (
                (def_of + "void take(const Hidden& hidden);", wrong),
                (def_of + "struct A { std::shared_ptr<const Hidden> hidden; };", wrong),
                (a_class + " public:\n  explicit A(int x);\n  Hidden* all();\n};", wrong),
                (a_class + " public:\n  explicit A(int x);\n\n private:\n  Hidden* all();\n};",),
                (a_class + " private:\n  int x;\n\n public:\n  Hidden* all();\n};", wrong),
                (a_class + " public:\n  friend Hidden of(const A&, int x,\n                   int "
                           "y);\n  int all();\n};",),
                ("}\nnamespace at {\nclass Tensor;\n}\nnamespace linerate {\nstruct A { Tensor* x; "
                 "};",)):
            self.expect(body, *wanted)
        self.assertEqual(self.problems({
            "core/a.hpp": header(def_of + "void take(const Hidden& hidden);"),
            "core/b.hpp": header("struct Hidden {\n  int x = 0;\n};")}), [])

    def test_times_that_a_caller_sets_are_durations(self):
        for name, member in (("timeout", "double timeout = 1;"), ("budget", "Seconds budget{10};"),
                             ("start_timeout", "std::optional<Seconds> start_timeout{};")):
            self.expect(f"struct A {{ {member} }};",
                        f"{name} is a time that a caller sets: a Duration (core/units.hpp)")
        self.expect("struct A { Duration timeout{1}; double period_s = 0; };")


if __name__ == "__main__":
    unittest.main()
