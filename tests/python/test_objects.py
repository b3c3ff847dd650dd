"""What results and documents are as Python objects."""

import concurrent.futures
import copy
import html
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, TRACES

import linerate

LATE = str(TRACES / "late2.rank*.json.gz")
NAMES = ["workload", "timeline", "cluster", "predicted"]


@pytest.mark.parametrize("name", NAMES)
def test_documents_are_saved_loaded_and_copied(name, documents, tmp_path):
    document = documents[0][name]
    document.save(tmp_path / "d.json")
    for other in (type(document).load(tmp_path / "d.json"),
                  type(document).from_dict(document.to_dict()), copy.deepcopy(document)):
        assert other == document and hash(other) == hash(document)


def test_other_collectives_of_a_workload_cost_time(documents):
    workload, cluster = documents[0]["workload"], documents[0]["cluster"]
    assert workload.other_collectives == ()
    gather = {"collective": "all-gather", "bytes": 4_000_000, "place": "update", "every": 2}
    more = linerate.Workload.from_dict({**workload.to_dict(), "other_collectives": [gather]})
    assert more.other_collectives[0].place == "update" and more.other_collectives[0].every == 2
    steps = [linerate.whatif(w, cluster)[0].step_s for w in (workload, more)]
    assert steps[1] > steps[0]
    with pytest.raises(linerate.InputError,
                       match="/other_collectives/0/place: expected one of forward"):
        linerate.Workload.from_dict({**workload.to_dict(),
                                     "other_collectives": [{**gather, "place": "later"}]})


def test_predictions_and_advice_are_saved_and_loaded(documents, tmp_path):
    for name, kind in (("predictions", linerate.Predictions), ("advice", linerate.Advice)):
        documents[0][name].save(tmp_path / "d.json")
        assert kind.load(tmp_path / "d.json").to_dict() == documents[0][name].to_dict()


@pytest.mark.parametrize("name", NAMES)
def test_a_newer_document_is_refused_by_name(name, documents):
    document = documents[0][name]
    newer = {**document.to_dict(), "schema": document.to_dict()["schema"] + 1}
    with pytest.raises(linerate.InputError, match="this linerate is older than the file"):
        type(document).from_dict(newer)


def test_documents_and_results_never_change(documents):
    w, p = documents[0]["workload"], documents[0]["predictions"]
    for change in (lambda: setattr(w, "name", "x"), lambda: setattr(w.gradients[0], "name", "x"),
                   lambda: setattr(p[0], "ranks", 1)):
        with pytest.raises(AttributeError):
            change()
    with pytest.raises(TypeError):
        w.gradients[0] = None
    one = w.to_dict()
    one["gradients"].clear()
    assert w.to_dict()["gradients"] and w.gradients


def test_attributes_are_the_keys(documents):
    made = documents[0]
    e = linerate.explain(LATE)
    for result in (*made.values(), made["cluster"].fit, e,
                   linerate.compare(made["predicted"], made["timeline"])):
        values = result.to_dict()
        for key in values:
            if key != "notes":
                assert linerate.Record({"v": values[key]}).v == getattr(result, key)
        assert set(values) <= set(dir(result))
    assert e.gain_ceilings.to_dict() == e.to_dict()["why"]["gain_ceiling_share_of_step"]
    with pytest.raises(AttributeError, match="did you mean verdict"):
        _ = e.verdct


def test_declared_attributes_exist(documents):
    made = documents[0]
    results = [*made.values(), made["predictions"][0], made["cluster"].fit, linerate.explain(LATE),
               linerate.plan(made["workload"], made["cluster"]),
               linerate.compare(made["predicted"], made["timeline"]),
               linerate.whatif_collective("all-reduce", made["cluster"], size="1MiB")]
    for result in results:
        for cls in type(result).__mro__:
            for name in cls.__dict__.get("__annotations__", {}):
                if not name.startswith("_"):
                    getattr(result, name)


@pytest.mark.parametrize("name", ["timeline", "predicted", "predictions", "advice"])
def test_notebooks_show_the_report_s_charts(name, documents):
    shown = documents[0][name]._repr_html_()
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert page.startswith("<!DOCTYPE html>") and "<svg" in page and "<script>" in page
    assert "https://" not in re.sub(r'xmlns="[^"]*"', "", page) or "src=" not in page


def test_results_turn_into_pandas(documents):
    pandas = pytest.importorskip("pandas")
    made = documents[0]
    e, c = linerate.explain(LATE), linerate.compare(made["predicted"], made["timeline"])
    for result, rows in (
            (made["predictions"], 4), (made["workload"], len(made["workload"].gradients)),
            (made["timeline"], len(made["timeline"].events)),
            (made["advice"], len(made["advice"].candidates)), (e, len(e.collectives)),
            (made["cluster"].fit, len(made["cluster"].collectives)),
            (linerate.strategies(), len(linerate.strategies())), (c, 2 + len(c.kinds))):
        frame = result.to_pandas()
        assert isinstance(frame, pandas.DataFrame) and len(frame) == rows
    first = made["predictions"].to_pandas().iloc[0]
    assert (first.step_s == made["predictions"][0].step_s
            and (first.low_s, first.high_s) == made["predictions"][0].interval_s)
    events = made["timeline"].to_pandas()
    assert (events.end_s >= events.start_s).all() and set(events["rank"]) == {0, 1}


def test_threads_share_documents(documents):
    w, c = documents[0]["workload"], documents[0]["cluster"]
    alone = linerate.whatif(w, c, ranks=[2, 8], strategy=["ddp", "dear"]).to_dict()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(linerate.whatif, w, c, ranks=[2, 8], strategy=["ddp", "dear"])
                for _ in range(16)]
        assert all(job.result().to_dict() == alone for job in jobs)


def test_other_threads_run_meanwhile():
    """The GIL is released: a thread counts on while another one advises."""
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    seen = []
    long_work(progress=lambda line: seen.append(counted[0]))
    stop.set()
    thread.join()
    assert seen and before < seen[0] and seen == sorted(set(seen))


def test_progress_is_shown_where_it_is_asked_for(capfd):
    lines = []
    with_lines = long_work(progress=lines.append)
    assert lines and all(re.fullmatch(r"\d+ of at most \d+ simulations", line) for line in lines)
    assert capfd.readouterr() == ("", "")
    assert long_work(progress=True).to_dict() == with_lines.to_dict()
    out, err = capfd.readouterr()
    assert out == "" and "simulations" in err and err.endswith("\r\033[K")


def test_an_exception_of_progress_ends_the_work():
    class Enough(Exception):
        pass

    def enough(line):
        raise Enough(line)

    with pytest.raises(Enough):
        long_work(progress=enough)


def long_work(progress, ratios=80):
    """A search that takes longer than the tenth of a second after which progress is looked at."""
    codecs = [f"codec(ratio={r}, encode={e}GB/s)" for r in range(2, ratios) for e in (1, 2)]
    return linerate.advise("zoo:densenet201", input="3x224x224", batch=32, step_time=0.3,
                           bandwidth="10Gbit/s", ranks=64, codec=codecs, progress=progress)


def test_ctrl_c_ends_long_work():
    lines = []

    def interrupt():
        while not lines:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell that starts the tests in the background has made them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            long_work(progress=lines.append, ratios=2000)
    finally:
        signal.signal(signal.SIGINT, before)
    done, total = map(int, re.match(r"(\d+) of at most (\d+)", lines[-1]).groups())
    assert done < total


def test_nothing_is_printed(capfd, documents):
    e = linerate.explain(LATE)
    linerate.import_workload(LATE)
    linerate.plan(documents[0]["workload"], documents[0]["cluster"],
                  strategy="ddp+topk(density=0.01)")
    linerate.calibrate([ROOT / "tests/calibrate/recorded/runs_2ranks_1Gbit.csv"], ranks=2)
    assert e.notes is not None and capfd.readouterr() == ("", "")


def test_errors_are_kinds_of_one_error(documents):
    kinds = [linerate.UsageError, linerate.InputError, linerate.CommError, linerate.DeviceError,
             linerate.InternalError]
    assert ([kind.exit_code for kind in kinds] == [2, 3, 4, 5, 70]
            and all(issubclass(kind, linerate.Error) for kind in kinds))
    with pytest.raises(linerate.Error, match="MPI|mpirun"):
        linerate.calibrate()
    with pytest.raises(linerate.UsageError, match="expected a Workload"):
        linerate.whatif(documents[0]["cluster"], bandwidth="1Gbit/s")
    with pytest.raises(TypeError, match="ranks: expected text or a number"):
        linerate.whatif("zoo:lenet", ranks=[None])


def test_pages_and_perfetto(documents, tmp_path):
    made, folder = documents
    e = linerate.explain(LATE)
    linerate.report([made["predictions"], made["advice"], made["timeline"], e,
                     folder / "predicted.json"], tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().count("<section>") >= 4
    linerate.report(made["advice"], tmp_path / "one.html")
    made["advice"].save_html(tmp_path / "advice.html")
    assert (tmp_path / "one.html").read_text() == (tmp_path / "advice.html").read_text()
    with pytest.raises(linerate.UsageError, match="expected Timelines"):
        linerate.report([made["workload"]], tmp_path / "none.html")
    linerate.export(made["timeline"], tmp_path / "object.json")
    linerate.export(folder / "timeline.json", tmp_path / "file.json")
    assert (tmp_path / "object.json").read_bytes() == (tmp_path / "file.json").read_bytes()


def test_torch_says_how_to_get_it():
    with pytest.raises(ModuleNotFoundError,
                       match="pip install --no-build-isolation ./python/torch"):
        import linerate.torch  # noqa: F401


def test_importing_needs_neither_torch_nor_much():
    text = ("import sys, linerate; assert not {'torch', 'numpy', 'pandas', 'CLI'} & "
            "set(sys.modules), sys.modules.keys()")
    subprocess.run([sys.executable, "-c", text], check=True)


def test_help_says_the_units():
    assert ("bandwidth: Line rates of the network" in linerate.whatif.__doc__
            and "(a number: B/s)" in linerate.whatif.__doc__)
    for name in linerate.__all__:
        assert name.startswith("__") or getattr(linerate, name).__doc__, name
