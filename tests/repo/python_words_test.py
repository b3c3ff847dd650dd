#!/usr/bin/env python3
"""What the library says is understood in Python too: messages of the modules that linerate.torch is
made of name nothing that only C++ has. `no_sync()`, `finish()` and `settle()` are there in both.
"""
import re
import sys
import unittest

from the_tree import ROOT
ONLY_CPP = re.compile(
    r"\w::\w|\baccumulate\(|\b[A-Z]\w*Options\b|\bLibTorch|\bmake_world|\brun_ranks|"
    r"\bregistration_report|\((?:true|false)\)|\bATen\b|nullptr|\.hpp\b")
# What no Python program can bring about: the place, and why.
NEVER_SAID = {
    "comm/thread/thread_channel.cpp": "ranks that are threads",
    "kfac/kfac.cpp: K-FAC: loss_average is not set":
        "loss_average= has a default",
}
STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')


def modules():
    """What python/torch/CMakeLists.txt builds the extension from."""
    text = (ROOT / "python/torch/CMakeLists.txt").read_text()
    return re.search(r"foreach\(module ([^)]*)\)", text)[1].split()


def messages_of(text):
    """The strings of a source that hold a sentence, each joined from its pieces."""
    text = re.sub(r"^\s*(?://|#include).*$|'\\?\"'", "", text, flags=re.M)
    for match in STRINGS.finditer(text):
        joined = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', match[0]))
        if " " in joined:
            yield joined


def said():
    for module in modules():
        for folder in (ROOT / "src/linerate" / module, ROOT / "include/linerate" / module):
            for path in sorted(folder.rglob("*.[ch]pp")):
                for message in messages_of(path.read_text()):
                    yield f"{path.relative_to(folder.parents[module.count('/')])}: {message}"
    for path in sorted((ROOT / "python/torch/src").glob("*.cpp")):
        for message in messages_of(path.read_text()):
            yield f"{path.name}: {message}"


class Messages(unittest.TestCase):
    def test_are_found_and_joined(self):
        found = list(said())
        self.assertGreater(len(found), 500)
        self.assertTrue(any(m.startswith("torch_adapter/data_parallel_step.cpp: ")
                            and "was not called after the backward pass of step {}" in m
                            and m.endswith("no_sync()") for m in found))

    def test_what_only_cpp_has_is_seen(self):
        for text in ("call DataParallel::finish()", "inside accumulate()", "with sparse(false)",
                     "see KfacOptions", "past ATen"):
            self.assertTrue(ONLY_CPP.search(text), text)

    def test_name_nothing_that_only_cpp_has(self):
        wrong = [m for m in said()
                 if ONLY_CPP.search(m.split(": ", 1)[1]) and not m.startswith(tuple(NEVER_SAID))]
        self.assertEqual(wrong, [])

    def test_exceptions_exist(self):
        found = list(said())
        for place in NEVER_SAID:
            self.assertTrue(any(m.startswith(place) for m in found), place)


unittest.main(argv=sys.argv[:1])
