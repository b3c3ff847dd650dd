"""tools/gpu-lab peers: PyTorch's DDP, its fp16 and powerSGD hooks, linerate's strategies and KAISA,
trained in turn in one job.

For each model and rate a job of --ranks ranks starts (peers_rank.py). Every contender has a model
of its own, from the same weights and batch. Weights after four steps are compared with DDP's, then
every contender has taken --loss-steps steps, after which their losses are compared; then they train
in turn, --rounds blocks of --steps steps each, K-FAC whole periods of ten. Times on a GPU are those
between events in the stream that computes; nothing waits for the device between steps. A ratio is
the median over rounds of a block's time over that of the contender named, with the least and the
largest; bounds stand next to those of the setup that they are stated for (ResNet-50, batch 32, 2
ranks sharing one GPU).

The unshaped job also records DDP (a trace a rank) and a rank's step alone, each job a table of
all-reduces: what `linerate whatif` predicts the steps from, next to what was measured
(bench/nccl_steps). --out gets results.json (device, versions, date, commit, every row), table.txt
(what is printed), measured.csv, table_RATE.csv and the traces, the form of recordings that
bench/nccl_steps reads.

Then `linerate calibrate --device` times codecs, factors, inverses and directions on the device,
alone on it: calibrated.json, a Cluster with the unshaped job's table of all-reduces. That needs
linerate-torch next to the command, built with a LibTorch for the device. --parts does some of this:
`--parts predict --out FOLDER` predicts what another machine has measured. --add keeps what the
folder has. Exit status 1 if a contender fails or weights that have to be DDP's are not. Bounds that
are missed are said, and are no failure.
"""
import csv
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

from contenders import DDP, ON_GPUS, UNSHAPED
from ratios import lines_of, missed, rows_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# samples a rank as ../shared/gpu has them, else 8
BATCHES = {"resnet50": 32, "vgg16-imagenet": 24, "bert": 8}
# as measured.csv names contenders.DDP
DDP_CONFIGURATION = "ddp bucket_cap_mb=25 gradient_as_bucket_view"
PARTS = ("measure", "calibrate", "predict")
# of weights from DDP's, relative, on more than two ranks; two add the same numbers
LARGEST_DIFFERENCE = 1e-6


def add_options(parser):
    parser.add_argument(
        "--model", nargs="+", default=["resnet50"],
        help="resnet50, vgg16-imagenet, bert; resnet18, vgg16, gpt, tiny (resnet50)")
    parser.add_argument("--rates", nargs="+", default=["unshaped", "10Gbit/s"],
                        help="one job each (unshaped 10Gbit/s)")
    parser.add_argument("--batch", type=int,
                        help="samples a rank (32 for resnet50, 24 for vgg16-imagenet, else 8)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="of a block (8)")
    parser.add_argument("--loss-steps", type=int, default=20,
                        help="steps after which losses are compared; whole tens (20)")
    parser.add_argument(
        "--endure", type=int, default=0,
        help="so many steps more of ddp, bulk, optimal and dear, for what might hang")
    parser.add_argument("--only", nargs="+", default=list(ON_GPUS), metavar="NAME",
                        help=f"some of: {'; '.join(ON_GPUS)}")
    parser.add_argument("--kaisa", type=pathlib.Path, default=ROOT.parent / "shared/peers",
                        help="the folder that holds kfac/ of gpauloski/kfac-pytorch")
    parser.add_argument("--linerate", type=pathlib.Path, default=ROOT / "build/release/linerate",
                        help="the command that predicts and calibrates")
    parser.add_argument("--codecs",
                        help="compressors that it calibrates on the device (all; on CPUs fp16)")
    parser.add_argument("--trace", nargs="+", default=[], metavar="NAME",
                        help="contenders of --only whose steps are recorded at each rate, too")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS,
                        help="what is done (all); without measure, of what --out has")
    parser.add_argument("--add", action="store_true", help="to the results that --out has")
    parser.add_argument(
        "--out", type=pathlib.Path,
        help="folder of the results (bench/results/gpu/DATE_DEVICE; on CPUs build/gpu-lab)")


def tag_of(rate):
    """As recordings name rates: "10Gbit/s" is 10G."""
    return "un" if rate == UNSHAPED else rate.removesuffix("bit/s")


def folder_of(devices):
    """Where results go if nothing is said."""
    if not devices:
        return ROOT / "build/gpu-lab"
    return (
        ROOT / "bench/results/gpu"
        / f"{datetime.date.today()}_{re.sub(r'[^A-Za-z0-9]+', '-', devices[0]).strip('-').lower()}")


def job_of(o, model, rate, lab, folder):
    return {"set": "gpus", "model": model, "device": o.device,
            "batch": o.batch or BATCHES.get(model, 8), "lr": 0.01, "rounds": o.rounds,
            "steps": o.steps, "loss_steps": o.loss_steps, "endure": o.endure, "names": o.only,
            "trace": o.trace, "kaisa": str(o.kaisa), "record": str(folder), "tag": tag_of(rate),
            "bits": lab.place.bits, "result": str(lab.folder / "result.json")}


def is_stated_for(job, place):
    """Whether the bounds are."""
    return (job["model"] == "resnet50" and job["batch"] == 32 and place.ranks == 2
            and len(place.devices) == 1)


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def provenance(result, place):
    """What a row is worth nothing without."""
    return {"device": result["device"], "gpus": len(place.devices),
            "versions": {**result["versions"], "kernel": platform.release()},
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": output_of("git", "rev-parse", "HEAD") or os.environ.get("LINERATE_COMMIT"),
            "changed": bool(output_of("git", "status", "--porcelain", "--untracked-files=no"))}


class Results:
    """What has been measured so far, written after each job: a device may be gone before the
    last."""

    def __init__(self, o):
        self.out, self.document, self.lines, self.measured = (
            o.out, {"format": 1, "jobs": [], "calibration": None, "predictions": []}, [], [])
        self.problems, self.missed = [], []
        if (o.add or "measure" not in o.parts) and o.out and (o.out / "results.json").exists():
            self.load()

    def load(self):
        """What a run before this one has written to the folder."""
        self.document = json.loads((self.out / "results.json").read_text())
        self.lines = (self.out / "table.txt").read_text().splitlines()
        with (self.out / "measured.csv").open(newline="") as file:
            self.measured = list(csv.reader(file))[1:]
        for job in self.document["jobs"]:
            self.judge(job)

    def folder_for(self, place):
        self.out = self.out or folder_of(place.devices)
        self.out.mkdir(parents=True, exist_ok=True)
        return self.out.resolve()

    def print(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def add(self, job, rate, result, place):
        rows = rows_of(result, ON_GPUS, rate if is_stated_for(job, place) else None)
        about = provenance(result, place)
        self.document["jobs"].append(
            {"model": job["model"], "rate": rate, "ranks": place.ranks, "batch": job["batch"],
             "rounds": job["rounds"], "steps": job["steps"], "place": place.words(),
             "missing": place.missing, **about, "rows": rows, "traces": result["traces"]})
        self.print(f"{job['model']}, {rate}, batch {job['batch']}, {place.words()}; "
                   f"{about['device']}, torch {about['versions']['torch']}, commit "
                   f"{(about['commit'] or '?')[:8]}{' and changes' if about['changed'] else ''}, "
                   f"{about['date']}")
        for row in rows:
            for line in lines_of(row, width=max(len(r["contender"]) for r in rows)):
                self.print(line)
        for name, words in result["traces"].items():
            self.print(f"  a trace of {name}: {words}")
        self.judge(self.document["jobs"][-1])
        self.measured += measured_rows(job, rate, result, place.ranks)

    def judge(self, job):
        where = f"{job['model']}, {job['rate']}"
        self.missed += [f"{where}: {one}" for one in missed(job["rows"])]
        self.problems += [f"{where}: {one}" for one in unsound(job["rows"], job["ranks"])]

    def write(self):
        (self.out / "results.json").write_text(json.dumps(self.document, indent=1) + "\n")
        (self.out / "table.txt").write_text("\n".join(self.lines) + "\n")
        with (self.out / "measured.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(
                "model,ranks,configuration,rate,median_ms,min_ms,max_ms,steps".split(","))
            writer.writerows(self.measured)


def unsound(rows, ranks):
    """What makes a run fail, in words: contenders that did, weights that are not DDP's."""
    for row in rows:
        if row["status"] == "failed":
            yield f"{row['contender']}: {row['reason']}"
        elif (row.get("weights_from_ddp")
              and (ranks == 2 or row["weights_from_ddp"] > LARGEST_DIFFERENCE)):
            yield f"{row['contender']}: weights are not DDP's"


def measured_rows(job, rate, result, ranks):
    """Of measured.csv: medians, least and largest of blocks, and how many; a rank's steps alone."""
    times = {"alone": result["alone"]} if result["alone"] else {}
    times |= {DDP_CONFIGURATION if name == DDP else name: row["blocks"]["step"]
              for name, row in result["rows"].items()}
    for name, seconds in times.items():
        ms = [1e3 * s for s in (statistics.median(seconds), min(seconds), max(seconds))]
        yield [job["model"], ranks, name, "" if name == "alone" else tag_of(rate),
               *(f"{m:.3f}" for m in ms), len(seconds)]


def calibrate(o, results):
    """What codecs and K-FAC's parts cost on the device, by the command; says why if it cannot."""
    table = results.out / f"table_{tag_of(UNSHAPED)}.csv"
    lacks = [f"{path} is absent ({why})"
             for path, why in ((table, f"the {UNSHAPED} job measures it"),
                               (o.linerate, "make build builds it")) if not path.exists()]
    if lacks:
        return results.print(f"not calibrated on the device: {'; '.join(lacks)}")
    codecs = o.codecs or ("" if o.device == "cuda" else "fp16")
    command = [o.linerate.resolve(), "calibrate", "--from", table, "--codecs",
               *([codecs] if codecs else []), "--second-order", "--device", o.device, "-o",
               results.out / "calibrated.json"]
    try:
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=o.limit)
    except subprocess.TimeoutExpired:
        return results.print(f"not calibrated on the device: no end after {o.limit} s")
    results.print(f"calibrated on the device ({o.device}), one process:"
                  if done.returncode == 0 else "not calibrated on the device:")
    for line in done.stdout.splitlines():
        results.print(f"  {line}")
    if done.returncode != 0:
        results.print(f"  LINERATE_PYTHON={o.python} make build builds linerate-torch for the "
                      "torch of the ranks")
    results.document["calibration"] = {"device": o.device, "exit": done.returncode,
                                       "printed": done.stdout.splitlines()}


def predict(o, results):
    """bench/nccl_steps on what was recorded: predicted next to measured; says why if it cannot."""
    if not o.linerate.exists():
        return results.print(f"not predicted: {o.linerate} is absent (make core-only builds it); "
                             f"then bench/nccl_steps {results.out}")
    found = results.out / "predictions.json"
    command = [sys.executable, ROOT / "bench/nccl_steps", results.out, "--linerate",
               o.linerate.resolve(), "--json", found]
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    results.print("predicted from the recording and the tables, next to measured:"
                  if done.returncode == 0 else "not predicted:")
    for line in done.stdout.splitlines():
        results.print(f"  {line}")
    if done.returncode == 0:
        results.document["predictions"] = json.loads(found.read_text())
        found.unlink()


def measure(o, results, open_lab, tell):
    """A job for each model and rate; what one has measured is written when it ends."""
    for model in o.model:
        for rate in o.rates:
            with open_lab(rate) as lab:
                tell(lab.place)
                if not lab.place.is_as_asked:
                    results.print(f"{model}, {rate}: left out: {'; '.join(lab.place.missing)}")
                    continue
                job = job_of(o, model, rate, lab, results.folder_for(lab.place))
                status = "a signal"
                try:
                    status = lab.run([o.python, HERE / "peers_rank.py", json.dumps(job)], o.limit)
                # what it has measured is kept, also if it ended badly or this program is ended
                finally:
                    written = pathlib.Path(job["result"])
                    if written.exists():
                        results.add(job, rate, json.loads(written.read_text()), lab.place)
                    if status != 0:
                        results.problems.append(f"{model}, {rate}: ended with {status}")
                    results.write()


def peers(o, open_lab, tell):
    """Measures and prints; `open_lab(rate)` makes the Lab of a job. Returns the exit status."""
    for option, names in (("--only", o.only), ("--trace", o.trace)):
        unknown = [name for name in names if name not in ON_GPUS]
        if unknown:
            sys.exit(
                f"gpu-lab: {option}: expected some of {'; '.join(ON_GPUS)}, found {unknown[0]}")
    results = Results(o)
    if "measure" in o.parts:
        measure(o, results, open_lab, tell)
    elif not results.measured:
        sys.exit(f"gpu-lab: {o.out or '--out'}: expected a folder with results.json that peers has "
                 "written; name it by --out")
    if results.measured:
        if "calibrate" in o.parts:
            calibrate(o, results)
            results.write()
        if "predict" in o.parts:
            predict(o, results)
        results.print(f"bounds missed or not told apart: {'; '.join(results.missed) or 'none'}")
        results.print(f"problems: {'; '.join(results.problems) or 'none'}")
        results.write()
        print(f"written: {os.path.relpath(results.out)}")
    calibrated = results.document["calibration"]
    if o.parts == ["calibrate"] and (calibrated is None or calibrated["exit"] != 0):
        return 1
    return 1 if results.problems or not results.measured else 0
