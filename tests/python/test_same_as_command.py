"""to_dict() is what the command prints with --json on the same files, for every option of every
verb: a case that succeeds for each option, and a test that none lacks it."""

import json
import re
import subprocess
import sys

import pytest
from conftest import LACKS, ROOT, TABLES, TRACES, command, run

import linerate
from linerate import _core
from linerate._call import keyword_of, options_of
from linerate._core import in_python

LATE = str(TRACES / "late2.rank*.json.gz")
EVEN = str(TRACES / "even2.rank*.json.gz")
RANKS = [TRACES / f"late2.rank{r}.json.gz" for r in (0, 1)]
GLOO = str(TRACES / "gloo2.rank*.json.gz")
GLOO_ALONE = TRACES / "gloo2_alone.rank0.json.gz"  # its model on one rank
SINGLE = TRACES / "single.rank0.json.gz"  # another model's
TABLE = TABLES / "runs_2ranks_1Gbit.csv"
ZOO = {"workload": "zoo:lenet", "input": "1x28x28", "batch": 32, "step_time": 0.01}
KIND = {"network": "4xpcie3,tcp:10Gbit/s"}
BOTH = {"workload": "@workload", "cluster": "@cluster"}
TABLE_OF_2 = {"from_": [TABLE], "ranks": 2}

# verb: [keywords]. "@name" is the document of that name, on the command's side its file.
CASES = {
    "explain": [
        {"files": LATE},
        {"files": RANKS},
        {"files": LATE, "data_idle": 0.3, "host_idle": 0.01},
        {"files": EVEN, "exposed": 0.9},
        {"files": GLOO, "alone": GLOO_ALONE},
        {"files": "@timeline"},
    ],
    "whatif": [
        BOTH,
        {**BOTH, "ranks": [2, 16], "bandwidth": ["10Gbit/s", 1.25e8],
         "strategy": ["ddp", "dear", "ddp+codec"], "latency": 2e-5, "compression_ratio": [1, 2.5]},
        {**ZOO, "classes": 10, "cluster": "@cluster", "ranks": 4, "cost_model": "ring",
         "scale": 0.5, "device_speed": 2, "coding": "papers"},
        {**ZOO, "step_time": "10ms", "step_time_covers": "forward_backward",
         "bandwidth": "10Gbit/s", "ranks": [4, 8], "preset": "agarwal2021", "gamma": 1.1,
         "epsilon": 0.1},
        {**ZOO, "bandwidth": "1Gbit/s", "ranks": 4, "preset": "zhang2020"},
        {**ZOO, **KIND, "ranks": [4, 8]},
    ],
    "plan": [
        {**BOTH, "strategy": "dear"},
        {**ZOO, "classes": 10, "step_time_covers": "step", "scale": 2, "device_speed": "0.5x",
         "cluster": "@cluster", "ranks": 4, "bandwidth": 1.25e9, "latency": 1e-5,
         "strategy": "ddp+codec", "compression_ratio": 8, "cost_model": "ring",
         "coding": "linerate", "preset": None},
        {**ZOO, "bandwidth": "10Gbit/s", "ranks": 2, "preset": "zhang2020"},
        {**BOTH, "ranks": 2, "training": True},
        {**ZOO, **KIND, "ranks": 8},
    ],
    "advise": [
        BOTH,
        {**BOTH, "framework": "pytorch"},
        {**ZOO, **KIND, "ranks": 8},
        {**ZOO, "classes": 10, "scale": 4, "device_speed": 2.5, "step_time_covers": "step",
         "cluster": "@cluster", "ranks": 8, "bandwidth": "2Gbit/s", "latency": "20us",
         "current": "bulk", "codec": "codec(ratio=8, encode=10GB/s)",
         "strategy": ["dear", "ddp+topk(density=0.01)"], "memory": 2**30,
         "steps_to_target": "codec(ratio=8)=1.1[1.05,1.2]", "least_gain": 5},
    ],
    "compare": [
        {"predicted": "@predicted", "measured": "@timeline"},
        {"predicted": "@predicted", "measured": LATE, "noise": "@timeline", "warm_up": 1},
    ],
    "all-reduce": [
        {"cluster": "@cluster", "size": ["1MiB", 4096]},
        {**KIND, "size": "1MiB", "ranks": 8},
        {"cluster": "@cluster", "size": "64KiB", "ranks": [2, 4], "bandwidth": 1.25e9,
         "latency": 1e-5},
    ],
    # These write a file: what is compared is in it, and for calibrate what --json prints as well.
    "import": [
        {"files": EVEN},
        {"files": EVEN, "timeline": True},
        {"files": GLOO, "alone": [GLOO_ALONE]},
        {"files": "@log", "add_cost": "@add", "step_time": 0.1,
         "step_time_covers": "forward_backward"},
    ],
    "calibrate": [
        TABLE_OF_2,
        {"from_": ["@plain", "@plain"], "ranks": [2, 4], "ranks_per_node": 1, "cores": 8,
         "line_rate": 2.5e8, "collective": "all-reduce"},
        {"from_": RANKS},
        {"cluster": "@cluster", "second_order": "@inverses"},
    ],
}
# What is timed while they run, where no two runs agree: all but the times is the same. Compressors
# are timed in the process itself, the network by the ranks of an mpirun, which a build with MPI has
# (pip install . --config-settings=cmake.define.LINERATE_WITH_MPI=ON).
CODECS = {
    "calibrate": [
        {**TABLE_OF_2, "codecs": ["topk(density=0.01)", "qsgd"]},
        {"cluster": "@cluster", "codecs": "fp16"},
    ],
}
PROBES = {
    "calibrate": [
        {"budget": 2, "largest": 65536, "threads": 1, "ranks": 2},
        {"budget": "2s", "largest": 1 << 20, "link": 1.25e8},
    ],
}
SAME_ERROR = {
    "calibrate": [{**TABLE_OF_2, "budget": 1}, {**TABLE_OF_2, "largest": 1 << 20},
                  {**TABLE_OF_2, "threads": 2}, {**TABLE_OF_2, "codecs": "nosuch"}, {}],
    "import": [{"files": EVEN, "alone": SINGLE}],
    "explain": [{"files": LATE, "alone": SINGLE}, {"files": "absent.json"},
                {"files": LATE, "exposed": 2}, {"files": []}],
    "whatif": [{"workload": "@workload"}, {**BOTH, "strategy": "dpd"}, {**BOTH, "bandwidth": "10"},
               {**BOTH, "ranks": 0}, {**BOTH, "preset": "x"},
               {"workload": "@cluster", "cluster": "@cluster"}],
    "advise": [{"workload": "@workload"}],
    "compare": [{"predicted": "@workload", "measured": "@timeline"}],
}
# Python's numbers are SI; the command is told other units.
UNITS = {"TIME": (1e3, "ms"), "SIZE": (1 / 1024, "KiB"), "RATE": (8e-6, "Mbit/s")}
FUNCTIONS = {
    "explain": linerate.explain,
    "import": linerate.import_workload,
    "calibrate": linerate.calibrate,
    "whatif": linerate.whatif,
    "plan": linerate.plan,
    "advise": linerate.advise,
    "compare": linerate.compare,
    "report": linerate.report,
    "export": linerate.export,
}


@pytest.fixture(scope="module")
def files(documents, tmp_path_factory):
    _, folder = documents
    extra = tmp_path_factory.mktemp("tables")
    (extra / "log.txt").write_text("prose\n2\n2\n10,400\n20,8\n30,400\n40,8\n")
    (extra / "add.csv").write_text("1024,0.000001\n1048576,0.0001\n")
    (extra / "plain.csv").write_text("bytes,seconds\n" + "".join(
        f"{1 << k},{1e-4 + (1 << k) * 1e-8:.6g}\n" for k in range(10, 24)))
    (extra / "inverses.csv").write_text("".join(f"inv,{n},{n**3 * 1e-12 + 1e-5:.6g}\n"
                                                for n in (64, 128, 256, 512, 1024)))
    return {
        "log": extra / "log.txt", "add": extra / "add.csv", "plain": extra / "plain.csv",
        "inverses": extra / "inverses.csv",
        **{name: folder / f"{name}.json" for name in documents[0]},
    }


def resolved(value, table):
    if isinstance(value, list):
        return [resolved(item, table) for item in value]
    return table[value[1:]] if isinstance(value, str) and value.startswith("@") else value


def call(verb, keywords, documents, files):
    """With documents as objects where there are some."""
    keywords = {key: resolved(value, {**files, **documents}) for key, value in keywords.items()}
    if verb == "all-reduce":
        return linerate.whatif_collective("all-reduce", **keywords)
    if verb == "import" and keywords.pop("timeline", False):
        return linerate.import_timeline(**keywords)
    return FUNCTIONS[verb](**keywords)


def text_of(value, option, files):
    """A value as it stands on a command line."""
    if isinstance(value, (int, float)) and option.type in UNITS:
        factor, unit = UNITS[option.type]
        return f"{value * factor:.12g}{unit}"
    return str(resolved(value, files))


def words_of(verb, keywords, files):
    words = ["whatif", "all-reduce"] if verb == "all-reduce" else [verb]
    for keyword, value in keywords.items():
        option = options_of(verb)[keyword]
        texts = [text_of(item, option, files)
                 for item in (value if isinstance(value, list) else [value])]
        if option.positional:
            words += texts
        elif value is not None:
            words.append(f"--{option.name}")
            words += [] if value is True else texts if keyword == "from_" else [",".join(texts)]
    return words


def all_cases(table):
    return [pytest.param(verb, case, id=f"{verb}-{i}") for verb, cases in table.items()
            for i, case in enumerate(cases)]


@pytest.mark.parametrize("verb, keywords", all_cases(CASES))
def test_to_dict_is_what_the_command_prints(verb, keywords, documents, files, tmp_path):
    result = call(verb, keywords, documents[0], files)
    typed = words_of(verb, keywords, files)
    if verb not in ("import", "calibrate"):
        done = run(*typed, "--json")
        assert result.to_dict() == json.loads(done.stdout)
        return
    output = tmp_path / "document.json"
    done = run(*typed, "-o", output, *(["--json"] if verb == "calibrate" else []))
    assert result.to_dict() == json.loads(output.read_text())
    result.save(tmp_path / "saved.json")
    assert (tmp_path / "saved.json").read_bytes() == output.read_bytes()
    if verb == "calibrate":
        assert result.fit.to_dict() == json.loads(done.stdout)
    elif not keywords.get("timeline"):
        assert list(result.notes) == [in_python(line.removeprefix("note: "))
                                      for line in done.stderr.splitlines()
                                      if line.startswith("note: ")]


# two measurements need not both give one
LEFT_OUT_AT_0 = {"encode_tensor_s", "decode_tensor_s", "half_sum_s_per_byte"}


def untimed(value):
    """A document, or what --json prints of it, with the numbers left out that a measurement
    gives."""
    if isinstance(value, dict):
        return {key: "measured" if key.endswith("_s") else untimed(item)
                for key, item in value.items() if key not in LEFT_OUT_AT_0}
    if isinstance(value, list):
        return [untimed(item) for item in value]
    return "measured" if isinstance(value, float) else value


def identities(cluster, largest):
    """What every probe of these ranks has alike; none was larger than that."""
    assert max(sample["bytes"] for cost in cluster["collectives"]
               for sample in cost["samples"]) <= largest
    identity = ("collective", "ranks", "dtype", "in_place")
    keys = cluster.keys() - LEFT_OUT_AT_0
    return [keys, cluster["ranks"], cluster["cores"],
            [[cost[key] for key in identity] for cost in cluster["collectives"]]]


@pytest.mark.parametrize("verb, keywords", all_cases(CODECS))
def test_what_is_timed_here_is_the_same_but_for_the_times(verb, keywords, documents, files,
                                                          tmp_path):
    cluster = call(verb, keywords, documents[0], files)
    output = tmp_path / "document.json"
    done = run(*words_of(verb, keywords, files), "-o", output, "--json")
    assert untimed(cluster.to_dict()) == untimed(json.loads(output.read_text()))
    assert untimed(cluster.fit.to_dict()) == untimed(json.loads(done.stdout))
    asked = keywords["codecs"]
    assert [codec.name for codec in cluster.codecs] == (asked
                                                        if isinstance(asked, list) else [asked])
    assert all(codec.encode_bytes_per_s > 0 for codec in cluster.codecs)


@pytest.mark.parametrize("verb, keywords", all_cases(PROBES))
def test_what_ranks_measure_together_is_the_same_but_for_the_times(verb, keywords, tmp_path):
    """Python's ranks and the command's, under mpirun. Without MPI both say the same, and what to
    do."""
    words = words_of(verb, keywords, {})
    if "mpi" in LACKS:
        with pytest.raises(linerate.CommError, match="built without MPI") as caught:
            FUNCTIONS[verb](**keywords)
        done = run(*words, "-o", tmp_path / "out.json", check=False)
        assert (done.returncode, in_python(done.stderr)) == (caught.value.exit_code,
                                                             f"error: {caught.value}\n")
        return
    mpirun = [ROOT / "tools/mpirun", "-n", "2"]
    program = tmp_path / "probe.py"
    program.write_text(
        f"import json, linerate, os, pathlib\nkeywords = {keywords!r}\nc = "
        f"linerate.{verb}(**keywords)\n"
        "folder, rank = pathlib.Path(__file__).parent, os.environ['OMPI_COMM_WORLD_RANK']\n"
        "c.save(folder / f'rank{rank}.json')\n(folder / "
        "f'fit{rank}.json').write_text(json.dumps(c.fit.to_dict()))\n")
    subprocess.run([*mpirun, sys.executable, program], check=True)
    typed = subprocess.run([*mpirun, command(), *words, "-o", tmp_path / "command.json",
                            "--json"], check=True, capture_output=True, text=True)
    ours, second, theirs, fit = (json.loads((tmp_path / name).read_text()) for name in (
        "rank0.json", "rank1.json", "command.json", "fit0.json"))
    assert ours == second, "every rank gets the same Cluster"
    largest = keywords["largest"]
    assert identities(ours, largest) == identities(theirs, largest)
    assert fit.keys() == json.loads(typed.stdout).keys()


@pytest.mark.parametrize("verb, keywords", all_cases(SAME_ERROR))
def test_an_error_has_the_command_s_text_in_python_s_words_and_its_kind(verb, keywords,
                                                                        documents, files, tmp_path):
    objects = {} if verb == "whatif" and keywords.get("workload") == "@cluster" else documents[0]
    if verb == "compare":
        objects = {}
    with pytest.raises(linerate.Error) as caught:
        call(verb, keywords, objects, files)
    done = run(*words_of(verb, keywords, files), *(["-o", tmp_path / "out.json"] if verb
                                                in ("calibrate", "import") else []), check=False)
    assert done.returncode == caught.value.exit_code, done.stderr
    assert in_python(done.stderr) == f"error: {caught.value}\n"


def test_a_device_is_measured_on_by_linerate_torch_alone(documents):
    with pytest.raises(linerate.UsageError, match="device=: LibTorch measures there, and this "
                                                  "program has none; run linerate-torch calibrate"):
        linerate.calibrate(cluster=documents[0]["cluster"], codecs="fp16", device="cuda")


@pytest.mark.parametrize("verb", [*FUNCTIONS, "all-reduce"])
def test_every_option_is_a_keyword_and_has_a_case_that_succeeds(verb):
    import inspect

    function = FUNCTIONS.get(verb, linerate.whatif_collective)
    parameters = set(inspect.signature(function).parameters) - {"progress", "output", "collective"
                                                                if verb == "all-reduce" else ""}
    options = set(options_of(verb))
    if verb == "import":
        parameters.add("timeline")  # import_timeline()
    assert parameters == options
    if verb in ("report", "export"):  # files only, no --json: test_objects.py
        assert options == {"files"}
        return
    elsewhere = {"device"} if verb == "calibrate" else set()  # what linerate-torch alone measures
    used = elsewhere | {key for table in (CASES, CODECS, PROBES)
                        for keywords in table.get(verb, []) for key, value in keywords.items()
                        if value is not None}
    assert options <= used, "add a case that succeeds with these options"


# Options of the command that say how and where to print: what stands for them is in the docstring
# of linerate._verbs.
PRINTING = {
    "explain": {"json"},
    "import": {"output"},
    "calibrate": {"output", "json"},
    "whatif": {"timeline", "plan", "html", "plot", "csv", "json"},
    "plan": {"output", "json", "dot"},
    "advise": {"html", "all", "json"},
    "compare": {"tasks", "json"},
    "report": {"output"},
    "export": {"output"},
    "all-reduce": {"json"},
}


@pytest.mark.parametrize("verb", PRINTING)
def test_the_command_has_the_same_options_and_those_of_printing(verb):
    help_text = run(*(["whatif", verb] if verb == "all-reduce" else [verb]), "--help").stdout
    typed = {keyword_of(name)
             for name in re.findall(r"^  (?:-\w,)?--([a-z-]+)", help_text, re.M)} - {"help"}
    options = {keyword for keyword, option in options_of(verb).items() if not option.positional}
    assert typed == options | PRINTING[verb]


@pytest.mark.parametrize("collective", _core.collectives())
def test_every_collective_has_its_time(collective, documents, files):
    keywords = {} if collective == "barrier" else {"size": "1MiB"}
    words = [] if collective == "barrier" else ["--size", "1MiB"]
    times = linerate.whatif_collective(collective, documents[0]["cluster"], ranks=4, **keywords)
    assert times.to_dict() == json.loads(run("whatif", collective, "-c", files["cluster"],
                                             "--ranks", 4, *words, "--json").stdout)


@pytest.mark.parametrize("what", ["strategies", "compressors", "cost-models", "networks", "models"])
def test_lists_are_those_of_the_command(what):
    listing = getattr(linerate, what.replace("-", "_"))()
    assert listing.to_dict() == json.loads(run("list", what, "--json").stdout)
    assert listing[0] == listing[listing.names[0]]


def test_every_verb_is_a_function_or_needs_more_than_this_distribution():
    verbs = re.findall(r"^  ([a-z]+)  ", run("--help").stdout.partition("Subcommands:")[2], re.M)
    assert set(verbs) == {*FUNCTIONS, "list", "train", "rehearse", "evaluate"}
    for verb in ("train", "rehearse", "evaluate"):
        words = {"train": ["--model", "lenet"], "rehearse": ["--plan", "x"],
                 "evaluate": ["--models", "lenet"]}[verb]
        done = run(verb, *words, check=False)
        assert done.returncode != 0


def test_texts_are_those_of_the_command_in_python_s_words(documents, files):
    made, _ = documents
    assert str(linerate.explain(LATE)) + "\n" == in_python(run("explain", LATE).stdout)
    predictions = linerate.whatif(made["workload"], made["cluster"], ranks=[2, 4],
                                  bandwidth=["1Gbit/s", "10Gbit/s"])
    typed = ["whatif", "-w", files["workload"], "-c", files["cluster"], "--ranks", "2,4",
             "--bandwidth", "1Gbit/s,10Gbit/s"]
    assert str(predictions) + "\n" == in_python(run(*typed).stdout)
    assert predictions.to_csv() == run(*typed, "--csv").stdout
    assert predictions.to_plot() in subprocess.run([command(), *map(str, typed), "--plot"],
                                                   capture_output=True, text=True,
                                                   env={"LC_ALL": "C.UTF-8"}).stdout
    planned = linerate.plan(made["workload"], made["cluster"], strategy="ddp")
    typed = ["plan", "-w", files["workload"], "-c", files["cluster"], "--strategy", "ddp"]
    assert str(planned) + "\n" == in_python(run(*typed).stdout)
    assert planned.to_dot() == run(*typed, "--dot").stdout
    advice = linerate.advise(made["workload"], made["cluster"])
    typed = ["advise", "-w", files["workload"], "-c", files["cluster"]]
    assert advice.to_text(all=True) == in_python(run(*typed, "--all").stdout)
    for framework in (None, "pytorch"):
        text = linerate.advise(made["workload"], made["cluster"], framework=framework,
                               steps_to_target="topk=2").to_text(all=True)
        assert not re.search(r"(?<![\w-])--[a-z]|wire=f16", text), text
    compared = linerate.compare(made["predicted"], made["timeline"])
    assert compared.to_text(tasks=True) == in_python(run("compare", files["predicted"],
                                                         files["timeline"], "--tasks").stdout)


def test_a_prediction_s_timeline_and_plan_are_those_that_the_command_saves(documents, files,
                                                                           tmp_path):
    made, _ = documents
    predictions = linerate.whatif(made["workload"], made["cluster"], ranks=[2, 4],
                                  strategy=["ddp", "dear"], bandwidth=["1Gbit/s", "10Gbit/s"],
                                  compression_ratio=[1, 2])
    assert len(predictions) == 16
    for index in (0, 5, 10, 15):
        p = predictions[index]
        ratio = [1, 2][index % 2]
        run("whatif", "-w", files["workload"], "-c", files["cluster"], "--ranks", p.ranks,
            "--strategy", ["ddp", "dear"][index // 8], "--bandwidth",
            ["1Gbit/s", "10Gbit/s"][index // 2 % 2], "--compression-ratio", ratio, "--timeline",
            tmp_path / "t.json", "--plan", tmp_path / "p.json")
        assert p.timeline().to_dict() == json.loads((tmp_path / "t.json").read_text())
        assert p.plan().to_dict() == json.loads((tmp_path / "p.json").read_text())


def test_versions_agree():
    version = (ROOT / "VERSION").read_text().strip()
    assert linerate.__version__ == version and run("--version").stdout.strip() == version
