#!/usr/bin/env python3
"""Every verb and option, used wrongly: the message is linerate's own, with place, expected, found
and next step, and exit 2.

Usage: misuse.py LINERATE [VERB [EVERY]]

Verbs, options and what they take are those of --help; `train` is left out unless it is named, since
each of its runs loads LibTorch. EVERY: only every so many cases. Besides, what a verb prints into a
full disk or a closed stream is exit 3.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# What CLI11 says of its own.
RAW = re.compile(
    r"At (Most|least) \d+ required|is required|not in range| not in \{|not expected|Could not "
    r"convert|ubcommand|disallowed|required \S+ missing|Should be true|too many inputs|CLI")
BOUNDS = r"\{[^}]*\}|(?:ABOVE|FROM) [^\s=]+|[^\s=]+ TO [^\s=]+"
OPTION = re.compile(r"  (?:-\w,)?--(?P<name>[\w-]+)(?: "
                    rf"(?P<type>[A-Z]+)(?::(?P<bounds>{BOUNDS}))?(?:=\S*)?)?(?P<more> \.\.\.)?")


def run(command, **streams):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          timeout=60, **streams)


def section(text, title):
    """The lines under a title of --help."""
    found = re.search(rf"^{title}:\n((?:  .*\n)+)", text + "\n", re.M)
    return found.group(1).splitlines() if found else []


def verbs_under(program, words):
    """[(words, --help)] of a verb and of those below it."""
    text = run([program, *words, "--help"]).stdout
    below = [line.split()[0].strip(",") for line in section(text, "Subcommands")
             if re.match(r"  \S", line)]
    found = [(words, text)] if words else []
    for name in below:
        if words or name != "train":
            found += verbs_under(program, [*words, name])
    return found


def misspelt(name, known):
    """The name without one of its letters, unless that is another one."""
    for at in range(len(name) // 2, len(name)):
        wrong = name[:at] + name[at + 1:]
        if wrong and wrong not in known:
            return wrong
    return None


def good_value(kind, bounds):
    if bounds and bounds.startswith("{"):
        return bounds[1:].split(",")[0].rstrip("}")
    if bounds and " TO " in bounds:
        return bounds.split(" TO ")[0]
    return "4"


def bad_values(kind, bounds):
    yield "", "expected a value, found an empty text"
    if bounds and bounds.startswith("{"):
        yield "nonsense", "expected"
    elif kind in ("INT", "UINT", "FLOAT"):
        yield "nonsense", "expected a"
        low = float(bounds.split(" TO ")[0].split()[-1]) if bounds else 0
        yield f"{low - 1:g}", "expected a"
        if bounds and " TO " in bounds:
            yield f"{float(bounds.split(' TO ')[1]) * 10 + 1:g}", "expected a"
        if kind != "FLOAT":
            yield "1.5", "expected a whole number"


def cases_of(words, text):
    """(what is typed after the verb, what the message says)"""
    options = [m.groupdict() for m in map(OPTION.match, section(text, "Options"))
               if m and m["name"] != "help"]
    assert options or words[0] == "list", (words, text)
    known = {o["name"] for o in options} | {"help"}
    yield ["--zzzzzzzz"], "found --zzzzzzzz"
    if re.search(r"REQUIRED", "\n".join(section(text, "Positionals") + section(text, "Options"))):
        yield [], "found nothing"
    if "..." not in "".join(section(text, "Positionals")):
        yield ["a", "b", "c"], "found"
    for o in options:
        name = "--" + o["name"]
        wrong = misspelt(o["name"], known)
        if wrong:
            yield ["--" + wrong, "4"], f"found --{wrong}; did you mean --"
        if not o["type"]:
            yield [name + "=3"], f"{name}: expected no value, found"
            continue
        value = good_value(o["type"], o["bounds"])
        yield [name, "--zzzzzzzz"], "found --zzzzzzzz"
        # these may come without
        if words != ["calibrate"] or o["name"] not in ("codecs", "second-order"):
            yield [name + "="], f"{name}: expected a value, found an empty text"
            yield [name], f"{name}: expected a value, found none; give {name}"
            for bad, said in bad_values(o["type"], o["bounds"]):
                yield [name, bad], f"{name}: {said}"
        if not o["more"]:
            yield [name, value, name, value], f"{name}: expected one value, found 2"
        if o["type"] in ("TIME", "SIZE", "RATE"):
            yield [name, "5parsecs"], ""


def complaint(program, words, typed, said):
    """What is wrong with the answer; empty if nothing is."""
    result = run([program, *words, *typed])
    text = result.stderr
    verb = " ".join(["linerate", *words])
    place = rf"error: (--[\w-]+|{verb}|linerate [a-z -]+|-[a-z]): "
    wrong = [what for what, holds in {
        "exit 2": result.returncode == 2,
        "no word of CLI11": not RAW.search(text),
        "one message": text.count("error: ") == 1,
        "place, expected, found": re.match(place + r".*(expected|give) .*", text),
        "what was found": said in text,
        "next step": re.search(r"--help says what it takes|; give |; write |; a \w+ has one "
                               r"of", text),
    }.items() if not holds]
    return f"{verb} {' '.join(typed)}: no {', no '.join(wrong)} in:\n{text}" if wrong else ""


def check_misuse(program, verb, every):
    verbs = verbs_under(program, [verb] if verb else [])
    cases = [(words, *case) for words, text in verbs for case in cases_of(words, text)][::every]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [w for w in pool.map(lambda c: complaint(program, *c), cases) if w]
    print(f"{len(cases)} misuses of {len(verbs)} verbs, {len(wrong)} answered badly")
    return wrong


JOB = ["-w", "zoo:lenet", "--input", "1x28x28", "--step-time", "10ms", "--ranks", 2]
# A run of each verb that needs one rank alone, in an order in which each finds its files.
ANSWERS = {
    "calibrate": ["--from", "table.csv", "-o", "c.json"],
    "whatif": [*JOB, "-c", "c.json", "--strategy", "ddp", "--timeline", "t.json", "--plan",
               "p.json"],
    "whatif all-reduce": ["-c", "c.json", "--size", "1MiB"],
    "plan": [*JOB, "-c", "c.json"],
    "advise": [*JOB, "-c", "c.json"],
    "explain": ["t.json"],
    "compare": ["t.json", "t.json"],
    "export": ["t.json", "-o", "e.json"],
    "report": ["t.json", "-o", "r.html"],
    "import": ["trace.json", "-o", "w.json"],
    "list models": [],
    "train": ["--model", "mlp", "--samples", 64, "--batch", 32, "--steps", 2, "--threads", 1,
              "--record", "run.json"],
}
NEEDS_RANKS = {"rehearse", "evaluate"}
TABLE = "bytes,seconds,ranks,collective\n" + "".join(f"{2**k},{1e-5 + 1e-9 * 2**k},2,all-reduce\n"
                                                     for k in range(10, 24))
TRACE = [
    {"cat": "user_annotation", "name": "ProfilerStep#7", "tid": 1, "ts": 0, "dur": 1000},
    {"cat": "cpu_op", "name": "torch::autograd::AccumulateGrad", "tid": 1, "ts": 200, "dur": 10,
     "args": {"Input Dims": [[100, 10]], "Input type": ["float"]}},
    {"cat": "kernel", "name": "gemm", "tid": 7, "ts": 0, "dur": 500},
    {"cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32", "tid": 9, "ts": 400, "dur": 200,
     "args": {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
              "Group size": 2, "dtype": "Float"}},
]


def files_of(folder):
    """Their bytes by name; times that a run measured aside."""
    return {f.name: f.read_bytes() for f in folder.iterdir() if not f.name.startswith("run.")}


def check_streams(program, verb):
    """An answer that cannot be printed is exit 3, and never goes into a file that the verb
    opens."""
    listed = {words[0] for words, _ in verbs_under(program, [])}
    assert {name.split()[0] for name in ANSWERS} | NEEDS_RANKS == listed | {"train"}, listed
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "table.csv").write_text(TABLE)
        (folder / "trace.json").write_text(json.dumps({
            "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
            "traceEvents": [{"ph": "X", "pid": 1, **event} for event in TRACE]}))
        for words, arguments in ANSWERS.items():
            if (words == "train") != (verb == "train"):
                continue
            for typed in (["--help"], arguments):
                command = [program, *words.split(), *typed]
                plain = run(command, cwd=folder)
                assert plain.returncode == 0, plain.stderr
                kept = files_of(folder)
                full = run(command, cwd=folder, stdout=open("/dev/full", "w"))
                closed = run(["sh", "-c", 'exec "$@" >&-', "sh", *command], cwd=folder)
                for how, result in (("full", full), ("closed", closed)):
                    expected = (3, "standard output: cannot write") if plain.stdout else (0, "")
                    if (result.returncode != expected[0] or expected[1] not in result.stderr
                        or files_of(folder) != kept):
                        wrong.append(
                            f"{words} {typed}, {how}: exit {result.returncode}, {result.stderr}")
    return wrong


def main():
    program, verb, every = (pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:], *[""] * 2)[:3]
    if verb == "train" and not (program.parent / "linerate-torch").exists():
        raise SystemExit(77)
    wrong = check_misuse(program, verb, int(every or 1)) + check_streams(program, verb)
    raise SystemExit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
