#!/usr/bin/env python3
"""SGD, Adam and K-FAC at equal steps and at equal time: loss curves of two models on Fashion-MNIST,
several seeds.

  bench/kfac_curves/run.py --linerate build/release/linerate --out FOLDER [--seeds 3]
                           [--model resnet18] [--strategy "ddp+kfac(spd, largest=16384)"]

--strategy: K-FAC by other options than its defaults.

Runs take turns, so that a slow minute of the machine hits all. Every optimizer has the learning
rate that gave it the lowest training loss after half the steps, of those listed here, with seed
100. For equal time each optimizer trains again, with a schedule of as many of its mean steps
(inverses included, which come in few) as fit into the time of the fastest. Tests take batch norm's
averages from training samples, by the weights of then, for every optimizer alike: running averages
of so few steps are not yet where the weights are. Writes curves.json and curves.svg; prints a line
for each model and optimizer. Checked first: each run took all its steps, and its losses are finite.
"""
import argparse
import csv
import json
import math
import statistics
import subprocess
import tempfile
from pathlib import Path

MODELS = {  # steps, samples a step, training samples
    "lenet": (300, 64, 20000),
    "resnet18": (100, 128, 12800),  # a whole period of K-FAC's inverses
}
OPTIMIZERS = {  # options of `linerate train`, learning rates to choose from
    "SGD": (["--optimizer", "sgd"], [0.02, 0.05, 0.1]),
    "Adam": (["--optimizer", "adam"], [0.001, 0.003, 0.01]),
    "K-FAC": (["--optimizer", "sgd"], [0.02, 0.05, 0.1]),  # and its strategy
}
COLOURS = {"SGD": "#777777", "Adam": "#d08020", "K-FAC": "#2060c0"}
SMOOTHED = 15  # steps
NORM_SAMPLES = 1280  # that batch norm's averages are of in a test


def train(linerate, model, options, rate, seed, steps):
    _, batch, samples = MODELS[model]
    with tempfile.TemporaryDirectory() as folder:
        losses = Path(folder) / "losses.csv"
        command = [linerate, "train", "--model", model, "--data", "fashion-mnist", "--steps", steps,
                   "--batch", batch, "--train-samples", samples, "--test-samples", 1000,
                   "--threads", 1, "--seed", seed, "--lr", rate, "--norm-samples", NORM_SAMPLES,
                   *options, "--losses", losses, "--json"]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
        result = json.loads(done.stdout)
        curve = [float(row["loss"]) for row in csv.DictReader(losses.open())]
    if len(curve) != steps or not all(map(math.isfinite, curve)):
        raise SystemExit(
            f"{model}, {options}: {len(curve)} of {steps} losses, or one is not finite")
    last = result["epochs"][-1]
    return {"losses": curve, "step_s": sum(e["train_s"] for e in result["epochs"]) / steps,
            "test_loss": last["test_loss"], "test_accuracy": last["test_accuracy"]}


def smoothed(curve):
    return [statistics.fmean(curve[max(0, i - SMOOTHED + 1):i + 1]) for i in range(len(curve))]


def chosen_rate(linerate, model, options, rates):
    steps = MODELS[model][0] // 2
    return min(rates,
               key=lambda r: smoothed(train(linerate, model, options, r, 100, steps)["losses"])[-1])


def measure(linerate, models, seeds):
    found = {}
    for model in models:
        runs = {name: {"rate": chosen_rate(linerate, model, *how), "runs": []}
                for name, how in OPTIMIZERS.items()}
        for seed in range(1, seeds + 1):
            for name, (options, _) in OPTIMIZERS.items():
                runs[name]["runs"].append(train(linerate, model, options, runs[name]["rate"], seed,
                                                MODELS[model][0]))
        found[model] = runs
        measure_equal_time(linerate, model, runs)
    return found


def measure_equal_time(linerate, model, runs):
    for of in runs.values():
        of["step_s"] = statistics.median(r["step_s"] for r in of["runs"])
    steps, least = MODELS[model][0], min(of["step_s"] for of in runs.values())
    for of in runs.values():
        fit = int(steps * least / of["step_s"])
        again = fit < 0.97 * steps  # else they are as fast
        of["steps_in_time"], of["in_time"] = (fit, []) if again else (steps, of["runs"])
    slower = {name: of for name, of in runs.items() if not of["in_time"]}
    for seed in range(1, len(next(iter(runs.values()))["runs"]) + 1):
        for name, of in slower.items():
            of["in_time"].append(train(linerate, model, OPTIMIZERS[name][0], of["rate"], seed,
                                       of["steps_in_time"]))


def spread(values):
    return f"{min(values):.3f} .. {max(values):.3f}"


def table(found):
    for model, runs in found.items():
        for name, of in runs.items():
            print(f"{model:9} {name:6} lr {of['rate']:<6} step {1e3 * of['step_s']:.2f} ms")
            for what, steps, all_of in (("equal steps", MODELS[model][0], of["runs"]),
                                        ("equal time", of["steps_in_time"], of["in_time"])):
                print(f"    {what:11} {steps:4} steps   training loss "
                      f"{spread([smoothed(r['losses'])[-1] for r in all_of])}   test loss "
                      f"{spread([r['test_loss'] for r in all_of])}   accuracy "
                      f"{spread([r['test_accuracy'] for r in all_of])}")


def chart(runs, x0, y0, width, height, by_time, title):
    """Lines of means over seeds with a band from the least to the largest, loss on a logarithmic
    axis."""
    curves = {name: [smoothed(r["losses"]) for r in of["in_time" if by_time else "runs"]]
              for name, of in runs.items()}
    unit = {name: (of["step_s"] if by_time else 1) for name, of in runs.items()}
    most = max(len(all_of[0]) * unit[name] for name, all_of in curves.items())
    values = [v for all_of in curves.values() for c in all_of for v in c]
    low, high = math.log(min(values)), math.log(max(values))
    px = lambda i, name: x0 + width * (i + 1) * unit[name] / most
    py = lambda v: y0 + height * (high - math.log(v)) / (high - low)
    out = [f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{title}</text>',
           f'<rect x="{x0}" y="{y0}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>']
    for v in (0.2, 0.3, 0.5, 1, 2, 4):
        if low < math.log(v) < high:
            out.append(f'<path d="M{x0} {py(v):.1f}h{width}" stroke="#eee"/>'
                       f'<text x="{x0 - 6}" y="{py(v) + 4:.1f}" text-anchor="end">{v}</text>')
    for part in (0, 0.5, 1):
        text = f"{most * part:.3g} s" if by_time else f"{most * part:.0f}"
        out.append(f'<text x="{x0 + width * part}" y="{y0 + height + 16}" '
                   f'text-anchor="middle">{text}</text>')
    out.append(f'<text x="{x0 + width / 2}" y="{y0 + height + 32}" text-anchor="middle">'
               f'{"time" if by_time else "steps"}</text>')
    for name, all_of in curves.items():
        columns = list(zip(*all_of))
        steps = len(columns)
        path = lambda pick, order: " ".join(f"{px(i, name):.1f},{py(pick(columns[i])):.1f}"
                                            for i in order)
        out.append(f'<polygon points="{path(min, range(steps))} '
                   f'{path(max, reversed(range(steps)))}" fill="{COLOURS[name]}" opacity="0.2"/>')
        out.append(f'<polyline points="{path(statistics.fmean, range(steps))}" fill="none" '
                   f'stroke="{COLOURS[name]}" stroke-width="1.6"/>')
    return out


def picture(found):
    width, height, gap = 380, 210, 100
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * (width + gap)}" '
           f'height="{len(found) * (height + gap) + 30}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    for i, (name, colour) in enumerate(COLOURS.items()):
        out.append(f'<path d="M{60 + 90 * i} 18h24" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{90 + 90 * i}" y="22">{name}</text>')
    for row, (model, runs) in enumerate(found.items()):
        for column, by_time in enumerate((False, True)):
            out += chart(runs, 60 + column * (width + gap), 60 + row * (height + gap), width,
                         height, by_time, f"{model}, training loss (mean of {SMOOTHED} steps), by "
                                          f"{'time' if by_time else 'steps'}")
    return "\n".join(out + ["</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--linerate", default="build/release/linerate")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--strategy", default="ddp+kfac(spd)", help="of K-FAC")
    arguments = parser.parse_args()
    OPTIMIZERS["K-FAC"][0].extend(["--strategy", arguments.strategy])
    found = measure(arguments.linerate, arguments.model or list(MODELS), arguments.seeds)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "curves.json").write_text(json.dumps(found) + "\n")
    (arguments.out / "curves.svg").write_text(picture(found))
    table(found)


if __name__ == "__main__":
    main()
