"""What every kind of result can do: be copied, pickled and shown, and be given to any function;
what is said speaks Python."""

import copy
import inspect
import multiprocessing
import pickle
import re

import pytest
from conftest import ROOT, TRACES

import linerate
from linerate import _core
from linerate._call import keyword_of, options_of
from linerate._documents import Result

LATE = str(TRACES / "late2.rank*.json.gz")
FUNCTIONS = [linerate.explain, linerate.import_workload, linerate.import_timeline,
             linerate.calibrate, linerate.whatif, linerate.plan, linerate.advise, linerate.compare,
             linerate.export, linerate.whatif_collective]
KINDS = [kind for kind in (getattr(linerate, name) for name in linerate.__all__
                           if not name.startswith("__")) if isinstance(kind, type)
         and issubclass(kind, (Result, linerate.Record, linerate.Listing))]
VERBS = ["explain", "import", "calibrate", "whatif", "plan", "advise", "compare", "report",
         "export", "all-reduce"]


@pytest.fixture(scope="module")
def results(documents):
    """One result of each kind."""
    made = documents[0]
    e = linerate.explain(LATE)
    all_of_them = [made["workload"], made["timeline"], made["cluster"], made["cluster"].fit,
                   made["predictions"], made["predictions"][0], made["advice"], e, e.causes[0],
                   linerate.compare(made["predicted"], made["timeline"]),
                   linerate.plan(made["workload"], made["cluster"], strategy="dear"),
                   linerate.whatif_collective("all-reduce", made["cluster"], size="1MiB"),
                   linerate.strategies()]
    of = {type(result): result for result in all_of_them}
    assert set(of) == set(KINDS), "a kind of result without an example"
    return of


def shown(result):
    """All that it answers without arguments."""
    said = {"repr": repr(result), "text": str(result), "html": result._repr_html_(),
            "dict": result.to_dict(), "notes": getattr(result, "notes", None)}
    for name in ("timeline", "plan", "to_csv", "to_plot", "to_text", "to_dot"):
        if callable(getattr(type(result), name, None)):
            answer = getattr(result, name)() if name != "to_plot" else None  # needs bandwidths
            said[name] = answer.to_dict() if isinstance(answer, Result) else answer
    if type(result) is linerate.Comparison:
        said["tasks"] = result.to_text(tasks=True)
    if type(result) is linerate.Advice:
        said["all"] = result.to_text(all=True)
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_copied_and_pickled(kind, results):
    result = results[kind]
    before = shown(result)
    copies = [copy.copy(result), copy.deepcopy(result), *(
        pickle.loads(pickle.dumps(result, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1))]
    copies.append(pickle.loads(pickle.dumps(copies[-1])))  # a copy of a copy
    for other in copies:
        assert type(other) is kind and shown(other) == before
        if kind is not linerate.Listing:
            assert other == result


def same(result):
    return result


def fails(_):
    linerate.whatif("zoo:nosuch", step_time=1, bandwidth="1Gbit/s", ranks=2)


def test_results_travel_to_another_process_and_back(results):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for kind, there_and_back in zip(results, pool.map(same, results.values())):
            assert shown(there_and_back) == shown(results[kind])
        with pytest.raises(linerate.UsageError, match="nosuch"):
            pool.apply(fails, (0,))


def test_predictions_that_were_read_are_shown_and_pickled(results, tmp_path):
    results[linerate.Predictions].save(tmp_path / "p.json")
    read = pickle.loads(pickle.dumps(linerate.Predictions.load(tmp_path / "p.json")))
    assert read == results[linerate.Predictions] and read._repr_html_().startswith("<iframe")
    for ask in (read[0].timeline, read[0].plan):
        with pytest.raises(linerate.UsageError, match="read from a file"):
            ask()


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_a_repr_and_html(kind, results):
    assert " object at 0x" not in repr(results[kind]) and kind.__name__ in repr(results[kind])
    assert re.match("<(iframe|pre|table)", results[kind]._repr_html_())


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_takes_a_result_or_says_what_it_takes(kind, results, tmp_path):
    page = tmp_path / "page.html"
    try:
        linerate.report([results[kind]], page)
    except linerate.UsageError as error:
        assert re.search("expected Timelines, Predictions, Advice, Explanations or files, found a "
                         f"{kind.__name__};", str(error))
    taken = {linerate.Timeline, linerate.Predictions, linerate.Prediction, linerate.Advice,
             linerate.Explanation}
    assert page.exists() == (kind in taken)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_refuse_results_that_they_cannot_use_in_words(function, results, documents,
                                                                tmp_path):
    """Whatever is handed in where a document may stand: an answer, a linerate.Error, or a TypeError
    for what is no result of a verb."""
    made = documents[0]
    good = {"workload": made["workload"], "cluster": made["cluster"], "files": LATE, "predicted":
                made["predicted"], "measured": made["timeline"], "collective": "all-reduce",
            "size": "1MiB", "output": tmp_path / "x.json", "from_": None}
    parameters = inspect.signature(function).parameters
    needed = {name: good[name] for name in parameters
              if name in good and (name != "collective" or function is linerate.whatif_collective)}
    for name in parameters.keys() - {"progress", "collective", "output"}:
        for kind, result in results.items():
            try:
                function(**{**needed, name: result})
            except (linerate.Error, TypeError, ValueError) as error:
                assert "bad_cast" not in str(error) and str(error), (name, kind)
                assert (isinstance(error, linerate.Error)
                        or not isinstance(result, Result)), (name, kind, error)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("empty", ["", "  "])
def test_empty_texts_are_refused_by_name(verb, empty, documents):
    function = {"all-reduce": lambda **k: linerate.whatif_collective("all-reduce", **k),
                "import": linerate.import_workload,
                "report": lambda **k: linerate.report(output="x.html", **k),
                "export": lambda **k: linerate.export(output="x.json", **k)}.get(
                    verb, getattr(linerate, verb.replace("-", "_"), None))
    made = documents[0]
    needed = {"workload": made["workload"], "cluster": made["cluster"], "files": LATE,
              "predicted": made["predicted"], "measured": made["timeline"], "size": "1MiB"}
    options = options_of(verb)
    needed = {name: value for name, value in needed.items() if name in options}
    for name, option in options.items():
        if option.type == "" or (verb == "import" and name == "timeline"):
            continue  # a flag
        for value in (empty, [empty]):
            with pytest.raises(linerate.UsageError,
                               match=f"^{name}=: expected text, found '{empty}'"):
                function(**{**needed, "ranks": 2, name: value}
                         if "ranks" in options else {**needed, name: value})


def test_an_empty_list_is_refused_where_a_value_is_expected(documents):
    with pytest.raises(linerate.UsageError, match="^ranks=: expected a value or more"):
        linerate.whatif(documents[0]["workload"], documents[0]["cluster"], ranks=[])


# ---- Python's words ----


@pytest.mark.parametrize("verb", VERBS)
def test_options_have_their_keyword_s_name(verb):
    for keyword, option in options_of(verb).items():
        if option.positional or option.name == "timeline":  # import_timeline()
            continue
        assert _core.in_python(f"--{option.name}: x") == f"{keyword}=: x"
    assert keyword_of("from") == "from_"


def texts_of_sources():
    """Every text of the modules that Python reaches, as the compiler joins it."""
    above = {"cli", "zoo", "python"}  # not linked
    verbs_it_lacks = {"contest.cpp", "rehearse.cpp"}
    for file in sorted([*(ROOT / "src/linerate").rglob("*.[ch]pp")]):
        if file.relative_to(ROOT / "src/linerate").parts[0] in above:
            continue
        if file.name == "in_python.cpp" or file.name in verbs_it_lacks:
            continue
        source = re.sub(r'^\s*//.*$|R"\((?s:.*?)\)"', "", file.read_text(), flags=re.M)
        for text in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source):
            yield file.name, "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"',
                                                text[0])).replace('\\"', '"').replace("\\n", "\n")


def test_no_text_names_an_option_of_the_command():
    """What still has a dash before a word after the translation is another program's, or a verb's
    that Python lacks."""
    others = [r"--mpi=\w+", r"--ntasks=", r"-np -n --np", r"mpirun -n", r"iconv -f .* -t",
              r"linerate-torch calibrate --[\w-]+", r"linerate evaluate with --seeds",
              r"--real codec", r"^--$", r"^-[a-z],--[\w-]+$", r"One of -s", r"\{\} --help",
              r"^--help$", r"--variant: expected auto", r"^-\w$", r"^-w \{\}",
              r"linerate train --(record|losses)"]
    seen = 0
    for file, text in texts_of_sources():
        if re.search(r"(^|[\s(`\"'])--?[a-z]", text):
            seen += 1
            left = re.sub("|".join(others), "", _core.in_python(text), flags=re.M)
            assert not re.search(r"(^|[\s(`\"'])--?[a-z]", left), (file, text, left)
    assert seen > 150


def test_what_is_said_speaks_python(results, documents, tmp_path):
    made = documents[0]
    small = made["workload"]
    errors = []
    for ask in (lambda: linerate.whatif(small), lambda: linerate.advise(small),
                lambda: linerate.whatif(small, bandwidth="10"),
                lambda: linerate.whatif("zoo:lenet", bandwidth="1Gbit/s", ranks=2),
                lambda: linerate.whatif(small, made["cluster"], ranks=0),
                lambda: linerate.whatif(small, made["cluster"], gamma=1.1),
                lambda: linerate.whatif(small, made["cluster"], ranks=2, preset="x"),
                lambda: linerate.advise(small, made["cluster"], memory="1B"),
                lambda: linerate.advise(small, made["cluster"], steps_to_target="x"),
                lambda: linerate.calibrate([made["workload"]]),
                lambda: linerate.calibrate(cluster=made["cluster"]),
                lambda: linerate.whatif(small, made["cluster"], step_time="0s"),
                lambda: linerate.whatif(small, made["cluster"], device_speed="x"),
                lambda: linerate.explain(LATE, alone=LATE)):
        with pytest.raises(linerate.Error) as caught:
            ask()
        errors.append(str(caught.value))
    said = [*errors,
            *(part for result in results.values()
              for part in (str(result), result._repr_html_(), *(getattr(result, "notes", ()))))]
    said += [row.reason for row in results[linerate.Advice].candidates]
    options = {"--" + option.name for verb in VERBS
               for option in options_of(verb).values()} | {"--json", "--all", "--tasks"}
    for text in said:
        text = re.sub(r"<style>.*?</style>|&lt;style&gt;.*?&lt;/style&gt;", "", text, flags=re.S)
        assert not options & set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)), text[:2000]
    for keyword in ("step_time=", "bandwidth=", "device_speed="):
        assert any(keyword in text for text in errors)


def test_documents_are_the_command_s():
    """to_dict() and save() keep the command's words, so that files are the same whoever wrote
    them."""
    listing = linerate.strategies().to_dict()
    assert ("--codecs" in str(listing)
            and "linerate.calibrate(codecs=...)" in str(linerate.strategies()))
