"""tools/gpu-lab kit --run on two ranks over gloo: every stage, without a GPU and without a kit, by
what the checkout has built. What it times is not looked at; tests/repo/gpu_lab_test.py has how
stages are supervised."""
import json
import re
import subprocess
import sys
import tarfile

import pytest
import torch
from jobs import HERE

ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench/peers")]
import gpu_kit  # noqa: E402
import gpu_smoke  # noqa: E402
import recordings  # noqa: E402
import shaped_links  # noqa: E402

NAMES = [stage.name for stage in gpu_kit.STAGES]
# which a machine without namespaces fails, and says so
SHAPED = {"check", "shaped", "kfac", "recordings"}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of the results."""
    folder = tmp_path_factory.mktemp("kit")
    done = subprocess.run([ROOT / "tools/gpu-lab", "kit", "--run", "--device", "cpu", "--python",
                           sys.executable, "--model", "tiny", "--kit", folder / "none", "--out",
                           folder / "out", "--archive", folder / "kept", "--minutes", "30",
                           "--limits", "6"], capture_output=True, text=True, timeout=1800)
    print(done.stdout, done.stderr)
    assert "none: no kit; what this checkout has built runs" in done.stderr
    return folder / "out"


def said(out, stage):
    return (out / f"{stage}.txt").read_text()


def test_each_stage_is_done_in_order(out):
    stages = json.loads((out / "kit-run.json").read_text())["stages"]
    assert [stage["name"] for stage in stages] == NAMES
    lacks = SHAPED if shaped_links.missing_for_links("ip", "tc", "nsenter") else set()
    lacks = lacks | ({"calibration"}
                     if not (ROOT / "build/release/linerate-torch").exists() else set())
    assert [stage["name"] for stage in stages if stage["status"] != 0
            and stage["name"] not in lacks] == [], [said(out, n)[-1000:] for n in NAMES]


def test_every_strategy_is_ddps_or_its_own_on_the_cpu(out):
    exact, names = gpu_smoke.registered()
    lines = [line for line in said(out, "smoke").splitlines()
             if "host " in line or "PROBLEM" in line]
    assert [line.split("  ")[0] for line in lines] == names
    for name, line in zip(names, lines):
        if name in exact:
            assert "DDP's bit for bit" in line
        else:
            assert float(re.search(r"(\S+) from its own on the CPU", line)[1]) < 1e-4, line
    assert f"{len(names)} strategies, 0 with problems" in said(out, "smoke")


def test_what_smoke_looks_for_is_found(monkeypatch):
    """A network that is not finite; what ranks over gloo cannot show is in the words below."""
    import torch.distributed as dist

    import linerate.torch as lt
    lt.init()
    network = gpu_smoke.network

    def broken():
        model = network()
        torch.nn.init.constant_(model[-1].bias, float("nan"))
        return model

    monkeypatch.setattr(gpu_smoke, "network", broken)
    cpu = torch.device("cpu")
    _, problems = gpu_smoke.look("ddp", False, None, cpu, dist.group.WORLD)
    assert problems == ["weights are not finite"]
    monkeypatch.setattr(gpu_smoke, "network", network)
    other = gpu_smoke.Run(None, cpu)
    monkeypatch.setattr(dist, "get_world_size", lambda *_: 2)
    monkeypatch.setattr(dist, "all_gather_object", lambda values, value, group:
                            values.__setitem__(slice(None), [value, value]))
    assert gpu_smoke.look("ddp", True, other, cpu, None)[1] == ["weights are not DDP's"]


def test_results_are_one_folder_and_are_packed(out):
    document = json.loads((out / "peers/results.json").read_text())
    rates = [job["rate"] for job in document["jobs"]]
    assert rates[0] == "unshaped" and set(rates[1:]) <= {"10Gbit/s"}
    for archive, inside, outside in (("results", "peers/results.json", ".json.gz"),
                                     ("traces", "peers/tiny_un_r1.json.gz", ".txt")):
        with tarfile.open(out.parent / f"kept/{archive}.tgz") as packed:
            names = packed.getnames()
        assert inside in names and not any(name.endswith(outside) for name in names)


def test_codecs_and_kfac_are_calibrated_on_the_device(out):
    found = json.loads((out / "peers/results.json").read_text())["calibration"]
    if not (ROOT / "build/release/linerate").exists():
        assert "not calibrated on the device: " in said(out, "calibration") and found is None
        return
    assert (found["device"] == "cpu"
            and all(f"  {line}" in said(out, "calibration") for line in found["printed"]))
    if not (ROOT / "build/release/linerate-torch").exists():
        assert found["exit"] == 2 and "linerate-torch" in found["printed"][-1]
        return
    assert found["exit"] == 0, found["printed"]
    cluster = json.loads((out / "peers/calibrated.json").read_text())
    assert [(codec["name"], codec["device"]) for codec in cluster["codecs"]] == [("fp16", "cpu")]
    assert (cluster["second_order"]["device"] == "cpu" and cluster["second_order"]["batches"]
            and cluster["collectives"])


def test_what_a_machine_has_measured_is_predicted_on_another(out):
    if not (ROOT / "build/release/linerate").exists():
        pytest.skip("only linerate.torch was built")
    done = subprocess.run([ROOT / "tools/gpu-lab", "peers", "--parts", "predict", "--out",
                           out / "peers"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    predicted = json.loads((out / "peers/results.json").read_text())["predictions"]
    assert ({"alone", "linerate ddp", "linerate dear"} <= {p["configuration"] for p in predicted}
            and "predicted from the recording" in done.stdout)


def test_recordings_say_what_a_step_costs(out):
    jobs = json.loads((out / "peers/results.json").read_text())["jobs"]
    if "recordings" in SHAPED and shaped_links.missing_for_links("ip", "tc", "nsenter"):
        pytest.skip("no shaped links here")
    traces = jobs[-1]["traces"]
    assert "linerate ddp" in traces and any("kfac(" in name for name in traces)
    assert all(re.fullmatch(r"\d{2,} operators a step, none of a device", words)
               for words in traces.values()), traces


def test_a_trace_names_where_the_host_waits(tmp_path):
    import gzip

    def event(cat, name, ts, dur, tid=1, **args):
        return {"cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}

    path = tmp_path / "trace.json.gz"
    events = [event("user_annotation", "ProfilerStep#3", 0, 50),
              event("user_annotation", "ProfilerStep#4", 50, 50),
              event("user_annotation", "inverse 0.A", 10, 20),
              event("cpu_op", "aten::linalg_eigh", 11, 10), event("cpu_op", "aten::item", 12, 5),
              event("cuda_runtime", "cudaStreamSynchronize", 13, 3),
              event("cuda_runtime", "cudaLaunchKernel", 60, 1),
              event("cuda_runtime", "cudaDeviceSynchronize", 61, 4, tid=2),
              event("kernel", "k", 15, 1000, stream=7), event("kernel", "k", 15, 1000, stream=7),
              event("gpu_memcpy", "m", 70, 2000, stream=9)]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    assert recordings.host_waits(events) == {"inverse 0.A: aten::item": 1, "?": 1}
    assert recordings.words_of(path) == (
        "2 operations of the device a step (1 in stream 7, 0 in stream 9), 2.0 ms of them; the "
        "host 0.0 ms in calls of CUDA, its waits: 0.5 in inverse 0.A: aten::item, 0.5 in ?")


def test_a_rank_that_is_gone_is_named(out):
    text = said(out, "ends")
    for case, names in (("linerate ddp: killed", "names"), ("DDP: killed", "does not name"),
                        ("linerate ddp: raises", "names"), ("linerate dear: killed", "names")):
        assert re.search(rf"^{case} +rank 0: status 1, \S+ s after its last whole step; it {names} "
                         r"rank 1", text, re.MULTILINE), text
    assert "CommError" in text and "ValueError: a batch without samples" in text


def test_ways_to_enqueue_are_timed(out):
    ways = re.findall(r"^(.{44}) +(\S+) ms a step .* (\S+) us of the host a call$",
                      said(out, "streams"), re.MULTILINE)
    assert [name.strip() for name, *_ in ways] == ["nothing is sent", "asynchronous",
                                                   "asyncOp=false"]
    assert all(float(step) > 0 and (float(call) > 0) == (name.strip() != "nothing is sent")
               for name, step, call in ways)
