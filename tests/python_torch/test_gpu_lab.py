"""tools/gpu-lab peers on two ranks over gloo: the command that measures GPUs, whole, without one.
What it times is not looked at."""
import csv
import json
import pathlib
import re
import subprocess
import sys

import pytest
import torch
from jobs import HERE

ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
from contenders import ON_GPUS  # noqa: E402

KFAC = next(name for name in ON_GPUS if "kfac(" in name)
NAMES = ["DDP", "DDP powerSGD_hook", "linerate ddp", "linerate optimal", "linerate dear",
         "linerate ddp+powersgd(rank=4)", "KAISA fraction 1", KFAC]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(folder of the results, what was printed): without KAISA, with a command that predicts what
    it is asked."""
    folder = tmp_path_factory.mktemp("peers")
    linerate = ROOT / "build/release/linerate"  # not there if only linerate.torch was built
    done = subprocess.run([ROOT / "tools/gpu-lab", "peers", "--device", "cpu", "--python",
                           sys.executable, "--model", "tiny", "--rates", "unshaped", "--rounds",
                           "2", "--steps", "2", "--endure", "5", "--parts", "measure", "predict",
                           "--only", *NAMES, "--kaisa", folder / "no", "--linerate", linerate,
                           "--out", folder / "out"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out", done.stdout, linerate.exists()


@pytest.fixture(scope="module")
def document(job):
    return json.loads((job[0] / "results.json").read_text())


def test_results_say_where_they_come_from(document):
    (found,) = document["jobs"]
    assert (found["model"], found["rate"], found["ranks"], found["batch"]) == ("tiny", "unshaped",
                                                                               2, 8)
    assert (found["versions"]["torch"] == torch.__version__ and found["versions"]["linerate"]
            and found["device"] and found["date"][:2] == "20")
    assert len(found["commit"] or "0" * 40) == 40  # none where the tree is not a checkout


def test_each_contender_has_its_row_in_order(document, job):
    rows = document["jobs"][0]["rows"]
    assert [row["contender"] for row in rows] == NAMES
    for row in rows:
        assert row["contender"] in job[1]
        if row["contender"].startswith("KAISA"):
            assert row["status"] == "not here" and "--kaisa" in row["reason"]
        else:
            assert row["status"] == "measured" and len(row["blocks_s"]) == 2 and row["step_s"] > 0
            assert all(r["at_most"] is None for r in row["ratios"]), (
                "the bounds are not stated for this model on CPUs")
    assert "second_order_s" in rows[-1] and "second_order_s" not in rows[0]


def test_what_is_measured_is_the_strategy_itself(document):
    """No trial, which would run "ddp" in turn with it; nothing else under its name."""
    rows = [row for row in document["jobs"][0]["rows"] if row["contender"].startswith("linerate ")]
    assert len(rows) == 5
    for row in rows:
        assert row["trial"] == "" and row["plan"].startswith(re.match(r"linerate ([a-z-]+)",
                                                                      row["contender"])[1]), row


def test_what_runs_in_anothers_place_is_not_measured():
    from types import SimpleNamespace

    from peers_rank import why_not_itself

    def parallel(runs, is_final=True):
        return SimpleNamespace(kfac=None, plan_is_final=is_final, plan=lambda: {"strategy": runs},
                               trial="dear was tried")
    assert why_not_itself("dear",
                          parallel("ddp")) == "ddp runs in the place of dear: dear was tried"
    assert (why_not_itself("dear", parallel("dear(bucket=4MiB)")) is None
            and "not final" in why_not_itself("dear", parallel("dear", False)))
    lines = {name: line for name, line in ON_GPUS.items() if name.startswith("linerate ")}
    assert [line.strategy for line in lines.values()] == [name.removeprefix("linerate ")
                                                          for name in lines]


def test_weights_and_losses_are_compared(document):
    rows = {row["contender"]: row for row in document["jobs"][0]["rows"]}
    for name in ("linerate ddp", "linerate dear"):
        assert rows[name]["weights_from_ddp"] == 0 and rows[name]["endured_steps"] == 5
        assert rows[name]["loss"] == rows["DDP"]["loss"]
    ours, hook = rows["linerate ddp+powersgd(rank=4)"], rows["DDP powerSGD_hook"]
    assert (ours["weights_from_ddp"] is None
            and [r["of"] for r in ours["ratios"]] == ["DDP powerSGD_hook", "DDP"])
    # ln 10 before the first step
    assert 0 < ours["loss"] < 2.3 and abs(ours["loss"] - hook["loss"]) < 0.05


def test_recordings_are_what_predictions_need(job, document):
    folder, printed, can_predict = job
    assert {p.name for p in folder.iterdir()} == {"results.json", "table.txt", "measured.csv",
                                                  "table_un.csv", "tiny_un_r0.json.gz",
                                                  "tiny_un_r1.json.gz"}
    rows = list(csv.DictReader((folder / "measured.csv").open()))
    measured = ["alone", "ddp bucket_cap_mb=25 gradient_as_bucket_view",
                *[n for n in NAMES[1:] if not n.startswith("KAISA")]]
    assert [r["configuration"] for r in rows] == measured
    if not can_predict:
        assert "not predicted: " in printed
        return
    predicted = {p["configuration"]: p for p in document["predictions"]}
    assert list(predicted) == [n for n in measured if not n.startswith("DDP ")]
    assert all(p["predicted_s"] > 0 for p in predicted.values())
    assert "advise at un: " in printed


def test_what_hosts_tell_each_other_passes_what_devices_exchange():
    """On shaped links that are full: by the median of 20 collectives of linerate's own, before a
    DataParallel exchanges by a device_group and after."""
    sys.path.insert(0, str(ROOT / "tools"))
    import shaped_links
    if shaped_links.missing_for_links("ip", "tc", "nsenter"):
        pytest.skip("no namespaces here")
    done = subprocess.run([ROOT / "tools/gpu-lab", "run", "--device", "cpu", "--rate", "100Mbit/s",
                           "--", sys.executable, HERE / "full_links.py"], capture_output=True,
                          text=True, timeout=120)
    if "no namespaces" in done.stderr or "one queue for all" in done.stdout:
        pytest.skip(done.stderr + done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = map(float,
                        re.search(r"before ([0-9.]+) ms, after ([0-9.]+) ms", done.stdout).groups())
    assert before > 4, "the links were not full"  # an empty one: 0.4 ms
    assert after < before / 2


def test_what_a_device_is_refused_for_is_said_so():
    """By linerate's own words about tensors that are on none of the CPU's memory."""
    import linerate.torch as lt
    import peers_rank
    from contenders import NotHere
    lt.init()
    meta = torch.device("meta")
    for strategy in ("ddp", "dear", "ddp+powersgd(rank=4)", KFAC.removeprefix("linerate ")):
        with pytest.raises(lt.Error) as refusal:
            lt.DataParallel(torch.nn.Linear(2, 2, device=meta), strategy,
                            process_group=torch.distributed.group.WORLD)
        what, reason = peers_rank.why_left_out(refusal.value, f"linerate {strategy}", meta)
        assert what == "not supported on a device yet" and "lies on meta" in reason
    assert peers_rank.why_left_out(ValueError("no such option"), "linerate ddp", meta) == (
        "failed", "ValueError: no such option")
    assert peers_rank.why_left_out(refusal.value, "linerate ddp",
                                   torch.device("cpu"))[0] == "failed"
    assert peers_rank.why_left_out(NotHere("absent"), "KAISA", meta) == ("not here", "absent")


def test_times_on_a_device_are_those_between_events(monkeypatch):
    """None of the host's, and nothing waits between steps."""
    from clock import Clock
    recorded = iter((5.0, 7.0, 11.0))

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at_ms = next(recorded)

        def elapsed_time(self, other):
            return other.at_ms - self.at_ms

        def synchronize(self):
            raise AssertionError("waits for the device")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = Clock(torch.device("cuda"))
    for _ in range(3):
        clock.mark()
    assert clock.seconds() == pytest.approx([2e-3, 4e-3]) and len(clock.processor_seconds()) == 2


def test_models_are_as_large_as_they_are_said_to_be():
    import models
    with torch.device("meta"):
        sizes = {name: sum(p.numel() for p in models.MODELS[name]().parameters())
                 for name in ("resnet50", "vgg16-imagenet", "gpt", "tiny")}
    # torchvision's, the first two
    assert sizes == {"resnet50": 25557032, "vgg16-imagenet": 138357544, "gpt": 3700736,
                     "tiny": 18026}


def test_kaisa_folder_is_found():
    """The peer's own files lie outside the tree."""
    folder = ROOT.parent / "shared/peers"
    if not (folder / "kfac").exists():
        pytest.skip(f"{folder}/kfac is absent")
    script = ("import sys; sys.path.append(sys.argv[1]); import contenders; "
              "contenders.find_kfac_pytorch(); import kfac.preconditioner as k; print(k.__file__)")
    done = subprocess.run([sys.executable, "-c", script, folder], cwd=ROOT / "bench/peers",
                          capture_output=True, text=True)
    assert pathlib.Path(done.stdout.strip()).is_relative_to(folder), done.stderr
