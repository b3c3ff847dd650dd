#!/usr/bin/env python3
"""Checks what public headers promise: include/linerate against the rules of docs/cpp.md.

- No third-party name or macro, except LibTorch's below kfac/ and torch_adapter/ and MPI's
  below comm/mpi/.
  (What is included, tests/repo/public_headers_test.py checks.)
- A class or struct with member functions has a line "Thread safety: ..." above it, or its header
  has one for all before #pragma once.
- A free function that returns a value is [[nodiscard]], and so is a member that returns a handle:
  WorkPtr, Busy, a unique_ptr.
- A timeout, deadline, period, delay or budget is a Duration, never a bare number of seconds.
- Raw memory (void*) comes with its element type, which has no default.
- A type of ours that a header only declares (class X;) is defined in a public header, unless
  private members alone use it: else nobody could call what takes or returns it.

Prints one line a violation ("include/linerate/doc/plan.hpp:7: ...") and exits with their number, 77
if there is no include/linerate.

    tools/check_public.py [ROOT]    ROOT: another tree than the one it lies in
"""
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent).resolve()
PUBLIC = ROOT / "include"

# Which third-party names may stand in the headers of a folder.
TORCH = {"torch", "at", "c10"}
ALLOWED = {"kfac/": TORCH, "torch_adapter/": TORCH, "comm/mpi/": {"MPI"}}
THREAD_SAFETY = "Thread safety:"
CLASS = re.compile(r"^( *)(?:class|struct) (?:\[\[nodiscard\]\] )?(\w+)[^;{\n]*(?:\n[^;{\n]*)?\{$",
                   re.M)
MEMBER_FUNCTION = re.compile(
    r"^\s+(?:\[\[\w+\]\] )?(?:[\w:<>,&*~ ]+[ &*])?~?[\w]+\([^;]*\)[^;{]*(?:;|\{)", re.M)
FREE_FUNCTION = re.compile(
    r"^(?!using |struct |class |enum |return |namespace |extern |friend |concept "
    r"|requires|template|typedef |void |inline void |constexpr void |#|/|\[\[)(?:inline |constexpr "
    r")*[A-Za-z_][\w:<>,&* ]*[ &*]+(\w+)\(", re.M)
HANDLE = re.compile(
    r"^ +(?:virtual |static )*(?:comm::)?(?:WorkPtr|Busy|std::unique_ptr<[^>]*>) (\w+)\(", re.M)
BARE_TIME = re.compile(
    r"\b(?:double|float|int|std::int64_t|Seconds|std::optional<Seconds>|std::optional<double>) "
    r"(\w*(?:timeout|deadline|period|interval_to|budget|at_most|patience|delay|grace)\w*)(?= "
    r"?[;={,)])")
RAW_MEMORY = re.compile(r"\b(\w+)\(([^()]*\bvoid\*[^()]*)\)")
DECLARED = re.compile(r"^(?:class|struct|enum class|enum) (\w+)(?: : [\w:]+)?;", re.M)
DEFINED = re.compile(r"^(?:class|struct|enum class|enum) (?:\[\[nodiscard\]\] "
                     r")?(\w+)\b[^;{()]*\{|^using (\w+) =", re.M)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)


def without_comments(text):
    """The same lines, comments and strings blanked."""
    return re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"', lambda m: " " * len(m[0]), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def comment_above(lines, number):
    """The /// lines right above line `number` (from 1), a template's own line left out."""
    at = number - 2
    while at >= 0 and re.match(r" *(template|requires)\b", lines[at]):
        at -= 1
    block = []
    while at >= 0 and lines[at].lstrip().startswith("//"):
        block.append(lines[at])
        at -= 1
    return "\n".join(block)


def foreign_names(folder, code):
    allowed = next((names for prefix, names in ALLOWED.items() if folder.startswith(prefix)), set())
    for match in re.finditer(
            r"(?<![\w:])(fmt|nlohmann|simdjson|hwy|CLI|toml|torch|at|c10)::|\b(HWY|MPI)_\w+", code):
        name = match[1] or match[2]
        if name not in allowed:
            yield match.start(), match[0]


def defined_types(headers):
    """Names of the types that public headers define, at the level of a namespace."""
    return {one or other for header in headers
            for one, other in DEFINED.findall(without_comments(header.read_text()))}


def for_users(code):
    """The same lines without what users cannot name: private members, friends, declarations that
    name nothing else."""
    for match in CLASS.finditer(code):
        end = code.find("\n" + match[1] + "};", match.end())
        section = re.compile(r"^" + match[1] + r" private:$.*?(?=^" + match[1]
                             + r" (?:public|protected):$|\Z)", re.M | re.S)
        body = section.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), code[match.end():end])
        code = code[:match.end()] + body + code[end:]
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])  # noqa: E731
    return DECLARED.sub(blank, re.sub(r"^ *friend [^;]*;", blank, code, flags=re.M))


def private_types(code, defined):
    """Positions and names of types of ours that are declared here, defined in no public header, and
    needed by users."""
    seen = for_users(code)
    for match in DECLARED.finditer(code):
        *_, space = [name[1] for name in NAMESPACE.finditer(code, 0, match.start())] or [""]
        if (space.split("::")[0] == "linerate" and match[1] not in defined
            and re.search(rf"\b{match[1]}\b", seen)):
            yield match.start(), match[1]


def problems_of(path, defined):
    """(position, what is wrong) in a header."""
    text = path.read_text()
    code, lines = without_comments(text), text.splitlines()
    for position, name in foreign_names(str(path.relative_to(PUBLIC / "linerate")), code):
        yield position, f"a public header may not name {name}"
    for match in CLASS.finditer(code):
        end = code.find("\n" + match[1] + "};", match.end())
        if (MEMBER_FUNCTION.search(code[match.end():end])
            and THREAD_SAFETY not in comment_above(lines, line_of(text, match.start()))
            and THREAD_SAFETY not in text.split("#pragma once")[0]):
            yield match.start(), f"{match[2]} does not say its thread safety"
    for pattern, what in ((FREE_FUNCTION, "returns a value"), (HANDLE, "returns a handle")):
        for match in pattern.finditer(code):
            if match[1] not in ("operator", "decltype", "requires"):
                yield match.start(1), f"{match[1]}() {what} and is not [[nodiscard]]"
    for position, name in private_types(code, defined):
        yield position, f"{name} is defined in no public header, and users need it here"
    for match in RAW_MEMORY.finditer(code):
        if not re.search(r"\bDType \w+(?=,|$)", match[2]):
            yield match.start(), (f"{match[1]}() takes raw memory without its element type, or "
                                  "with a default one")
    for match in BARE_TIME.finditer(code):
        if not match[1].endswith("_s"):
            yield match.start(), (f"{match[1]} is a time that a caller sets: a Duration "
                                  "(core/units.hpp)")


def main():
    headers = sorted((PUBLIC / "linerate").rglob("*.hpp"))
    if not headers:
        print("no public headers")
        return 77
    defined = defined_types(headers)
    problems = [f"{header.relative_to(ROOT)}:{line_of(header.read_text(), position)}: {what}"
                for header in headers for position, what in problems_of(header, defined)]
    print("\n".join(problems) or f"{len(headers)} public headers keep their promises")
    return min(len(problems), 70)


sys.exit(main())
