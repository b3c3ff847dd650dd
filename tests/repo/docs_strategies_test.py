#!/usr/bin/env python3
"""Every strategy text that documents show is planned by the command; those that it refuses are
marked.

Texts are found in code: `ddp+fp16`, --strategy ddp,dear, strategy=["ddp", "dear"], .strategy =
"dear". A name alone is taken from such an option only. A compressor alone follows ddp, one that the
page registers is left out, and the exchange `auto` of linerate.torch begins as ddp. `a|b` means
either, `tau=` an option that may be given, and where "..." leaves something out the names are
checked. A page marks a text that is refused, with a part of what the command says:
  <!-- refused: dear+topk(density=0.01): must be summed -->

Usage: docs_strategies_test.py LINERATE
"""
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINERATE = str(Path(sys.argv[1]).resolve())
RANKS = (4, 6)  # a text is valid if it is on one of these numbers of ranks
MARK = "<!-- refused: %s: %s -->"
MARKER = re.compile("(?<!`)" + MARK % ("(.*?)", "(.*?)"), re.S)


def listed(kind):
    return json.loads(subprocess.run([LINERATE, "list", kind, "--json"], capture_output=True,
                                     text=True, check=True).stdout)[kind]


def parts(text, separator):
    """Cut at separators outside of parentheses."""
    found, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == separator and depth == 0:
            found.append("")
        else:
            found[-1] += c
    return found


def closing(text, at):
    """Behind the parenthesis that closes the one at `at`; at, if none does on this line and the
    next two."""
    depth = 0
    for i in range(at, min(len(text), at + 300)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    return at


STRATEGY_LINES = listed("strategies")
STRATEGIES = {line["name"]: line["kind"] for line in STRATEGY_LINES}
START = re.compile(r"(?<![\w.:/+-])(?:%s)(?=[(+])"
                   % "|".join(sorted(map(re.escape, STRATEGIES), key=len, reverse=True)))
TERM = re.compile(r"[A-Za-z][\w-]*")
OPTION = re.compile(
    r"""--(?:strategy|current|codecs?|compressors)[ =](?!-)(?P<words>(?:"[^"]*"|[^\s"`|])+)"""
    r"""|\bstrategy"?\s*[=:]\s*(?P<one>"[^"\n]*")|\bstrategy\s*=\s*(?P<many>\[[^\]]*\])""")


def texts_of_code(code):
    """Strategy texts of a piece of code, in order."""
    code = re.sub(r"\\?\n\s*(?://+|#|\*)?\s*", " ", code)  # lines of a command, of a comment
    for found in OPTION.finditer(code):
        words = (found["words"].replace('"', "") if found["words"]
                 else ",".join(re.findall(r'"([^"]*)"', found["one"] or found["many"])))
        yield from (t.strip() for t in parts(words, ","))
    for found in START.finditer(code):
        at = found.start()
        while term := TERM.match(code, at):
            at = term.end()
            if code[at:at + 1] == "(":
                at = closing(code, at)
            if not re.match(r"\+[A-Za-z]", code[at:at + 2]):
                break
            at += 1
        yield code[found.start():at]


def code_of(page):
    """Blocks and spans of Markdown; strings and comments of a program; strings of a notebook's
    cells."""
    text = page.read_text()
    if page.suffix == ".md":
        rest = re.sub(r"^```.*?^```", "", MARKER.sub("", text), flags=re.S | re.M)
        return re.findall(r"^```[^\n]*\n(.*?)^```", text, re.S | re.M) + re.findall(r"`([^`]+)`",
                                                                                    rest)
    if page.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    options = [found[0] for found in OPTION.finditer(text)]
    return options + re.findall(r'''"""(.*?)"""|"([^"\n]*)"|(?://|#)([^\n]*)''', text, re.S)


def texts_of(page):
    own = "|".join(re.findall(r'register_compressor\(\{"([\w-]+)"', page.read_text()))
    for code in code_of(page):
        for piece in [code] if isinstance(code, str) else code:
            for text in texts_of_code(piece):
                if text.strip(".") and not re.search(r"[{}\"\\]", text):
                    yield re.sub(r"\s+", " ",
                                 re.sub(rf"\+({own})(\(.*?\)|$)" if own else "$^", "", text))


# ---- what the command says of a text ----

def expanded(text):
    """The texts that a notation stands for: kfac(d|spd) is two."""
    choices = re.split(r"([\w=.-]+(?:\|[\w.-]+)+)", text)
    for i in range(1, len(choices), 2):
        key, _, values = choices[i].rpartition("=")
        choices[i] = [key + "=" + v if key else v for v in values.split("|")]
    return ["".join(c)
            for c in itertools.product(*([c] if isinstance(c, str) else c for c in choices))]


def whole(text):
    """As --strategy takes it."""
    if re.match(r"auto(\+|$)", text):
        return "ddp" + text[4:]
    name = TERM.match(text)
    return (text if STRATEGIES.get(name and name[0], "exchange") in ("exchange", "kfac")
            else "ddp+" + text)


def names_of(text):
    return {TERM.match(term)[0] for term in parts(text, "+")}


class Planner:
    """Asks the command on a Cluster that knows what each compressor of an auto(...) costs."""

    def __init__(self, folder, texts):
        cluster = json.loads((ROOT / "bench/instructions/cluster.json").read_text())
        inside = {c.strip() for t in texts for found in re.findall(r"auto\((.*)\)", t)
                  for c in parts(found, ",")}
        cost = {"encode_fixed_s": 0, "encode_bytes_per_s": 1e10, "decode_fixed_s": 0,
                "decode_bytes_per_s": 1e10}
        cluster["codecs"] = [{"name": name, **cost} for name in sorted(inside | {"fp16"})]
        self.cluster = Path(folder) / "cluster.json"
        self.cluster.write_text(json.dumps(cluster))

    def problem(self, text):
        """None if it is planned on one of the numbers of ranks; else what the command says on the
        first."""
        if (given := re.sub(r"=(?=[,)])", "=1", text)) != text:
            without = re.sub(r"(?<=\(), *", "", re.sub(r",? *\b[\w-]+=(?=[,)])", "", text))
            return self.problem(without) and self.problem(given)
        if "..." in text or "…" in text:
            unknown = names_of(whole(text)) - set(STRATEGIES)
            return f"unknown {sorted(unknown)}" if unknown else None
        says = []
        for ranks in RANKS:
            run = subprocess.run([LINERATE, "plan", "-w", "zoo:lenet", "--step-time", "10ms", "-c",
                                  self.cluster, "--ranks", str(ranks), "--strategy", whole(text)],
                                 capture_output=True, text=True)
            if run.returncode == 0:
                return None
            says.append(run.stderr.strip())
        return says[0]


PAGES = [p for glob in ("*.md", "docs/**/*.md", "examples/**/*", "python/**/*", "src/**/*.md",
                        "bench/**/*.md", "tests/**/*.md") for p in sorted(ROOT.glob(glob))
         if p.suffix in (".md", ".cpp", ".py", ".ipynb") and p.name != "CHANGELOG.md"]


class Documents(unittest.TestCase):
    def test_what_they_show_is_planned_or_marked_as_refused(self):
        shown = {page: set(texts_of(page)) for page in PAGES}
        shown["linerate list"] = {t for line in [*STRATEGY_LINES, *listed("compressors")]
                                  for t in texts_of_code(line["line"])}
        texts = sorted({e for found in shown.values() for t in found for e in expanded(t)})
        self.assertGreater(len(texts), 100)
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(
                os.cpu_count()) as pool:
            problems = dict(zip(texts, pool.map(Planner(folder, texts).problem, texts)))
        for page, found in shown.items():
            marked = dict(MARKER.findall(page.read_text())) if isinstance(page, Path) else {}
            for text in sorted(found):
                with self.subTest(page=str(page), text=text):
                    says = [p for e in expanded(text) if (p := problems[e])]
                    if text in marked:
                        self.assertIn(marked[text], "; ".join(says) or "it is planned",
                                      "the marker says otherwise")
                    else:
                        self.assertFalse(says,
                                         "fix the text, or mark it: " + (MARK % (text, "why")))
            self.assertEqual(set(marked) - found, set(), f"{page} marks what it does not show")


class Scanner(unittest.TestCase):
    def test_finds_texts(self):
        for code, texts in {
            "--strategy ddp,ddp+fp16,\"dear(bucket=4MiB)+topk(density=0.01)\" -o x":
                {"ddp", "ddp+fp16", "dear(bucket=4MiB)+topk(density=0.01)"},
            "linerate.whatif(w, c, strategy=[\"nosuch\", \"dear\"])": {"nosuch", "dear"},
            "{.strategy = \"ddp+nosuch(a=1)\", .seed = 17}": {"ddp+nosuch(a=1)"},
            "kfac(spd, factors=10,\n   inverses=100)": {"kfac(spd, factors=10, inverses=100)"},
            '--compressors "fp16,nosuch" {"strategy": "bulk"}': {"fp16", "nosuch", "bulk"},
            "auto(topk(density=0.01), fp16)": {"auto(topk(density=0.01), fp16)"},
            "p.ddp(1), my_ddp(2), ddp": set(),
        }.items():
            self.assertLessEqual(texts, set(texts_of_code(code)))
            self.assertFalse(set(texts_of_code(code)) - texts - {"topk(density=0.01)"})
        self.assertEqual(expanded("threshold(density=0.01, tau=, form=value|two-bit)"),
                         ["threshold(density=0.01, tau=, form=value)",
                          "threshold(density=0.01, tau=, form=two-bit)"])

    def test_refused_texts_have_a_problem(self):
        with tempfile.TemporaryDirectory() as folder:
            ask = Planner(folder, []).problem
            for text in ("nosuch", "dear(bucket=4MiB)+topk(density=0.01)", "ddp(nosuch=1)",
                         "kfac(nosuch)", "ddp+nosuch(...)"):
                self.assertTrue(ask(text), text)


unittest.main(argv=sys.argv[:1])
