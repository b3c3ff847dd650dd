#!/usr/bin/env python3
"""What is public: headers in include/ alone. They include the C++ library and each other, so that
users need nothing else; docs/use-from-cmake.md lists them, and include/linerate/version.hpp says
the version in VERSION.

That each of them compiles alone against include/ is checked by the compiler: target
all_verify_interface_header_sets, which tests/package/run builds."""
import re
import unittest

from the_tree import ROOT
INCLUDE = ROOT / "include"
HEADERS = sorted(INCLUDE.rglob("*"))
PAGE = ROOT / "docs/use-from-cmake.md"
# Where headers of LibTorch and MPI may be included: by those who use that component have it.
TORCH = ("torch/", "ATen/", "c10/")
MAY_INCLUDE = {"linerate/kfac/": TORCH, "linerate/torch_adapter/": TORCH,
               "linerate/comm/mpi/": ("mpi.h",)}


class PublicHeaders(unittest.TestCase):
    def test_are_all_that_lies_in_include(self):
        self.assertEqual([p for p in HEADERS if p.is_file() and p.suffix != ".hpp"], [])
        self.assertEqual([p.name for p in INCLUDE.iterdir()], ["linerate"])

    def test_include_public_headers_and_the_cpp_library_alone(self):
        wrong = []
        for path in (p for p in HEADERS if p.is_file()):
            name = str(path.relative_to(INCLUDE))
            may = next((outside for folder, outside in MAY_INCLUDE.items()
                        if name.startswith(folder)), ())
            for bracket, header in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', path.read_text(),
                                              re.M):
                if bracket == '"':
                    fits = (INCLUDE / header).is_file()
                else:
                    fits = re.fullmatch(r"[a-z_]+", header) or header.startswith(may)
                if not fits:
                    wrong.append(f"{name} includes {header}")
        self.assertEqual(wrong, [])

    def test_have_no_other_file_of_their_name(self):
        """Which of two would be included depends on the order of folders."""
        twice = [str(p.relative_to(INCLUDE)) for p in HEADERS
                 if p.is_file() and (ROOT / "src" / p.relative_to(INCLUDE)).exists()]
        self.assertEqual(twice, [])

    def test_have_what_the_pages_show(self):
        """What a page's C++ names, as counters::Sampler, users must be able to include."""
        modules = {p.name for p in (ROOT / "src/linerate").iterdir()}
        public = " ".join(p.read_text() for p in HEADERS if p.is_file())
        wrong, shown = [], 0
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
            for block in re.findall(r"^```cpp\n(.*?)^```", page.read_text(), re.M | re.S):
                for module, name in re.findall(r"\b(\w+)::(\w+)", block):
                    shown += module in modules
                    if (module in modules
                        and not (re.search(rf"namespace linerate::{module}\b", public)
                                 and re.search(rf"\b{name}\b", public))):
                        wrong.append(f"{page.relative_to(ROOT)} shows {module}::{name}, which no "
                                     "public header has")
        self.assertEqual(wrong, [])
        self.assertGreater(shown, 10)

    def test_are_listed_on_their_page(self):
        listed = set()
        for folder, names in re.findall(r"^\| `([\w/.]+)` \| ((?:`\w+`(?:, )?)+) \|$",
                                        PAGE.read_text(), re.M):
            listed |= {f"linerate/{folder}/{name}.hpp".replace("/./", "/")
                       for name in re.findall(r"`(\w+)`", names)}
        self.assertEqual(sorted(listed),
                         [str(p.relative_to(INCLUDE)) for p in HEADERS if p.is_file()])


class Version(unittest.TestCase):
    def test_is_that_of_the_file_VERSION(self):
        version = (ROOT / "VERSION").read_text().strip()
        header = (INCLUDE / "linerate/version.hpp").read_text()
        parts = [re.search(rf"#define LINERATE_VERSION_{part} (\d+)$", header, re.M)[1]
                 for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(".".join(parts), version)
        self.assertEqual(re.search(r'kVersion = "([^"]+)"', header)[1], version)


unittest.main()
