"""Documents for the page test, computed here by a few lines of arithmetic: no number in them is a
measurement."""
import json
import random

STRATEGIES = {"bulk": (1, 0.0), "ddp": (6, 2e-5), "optimal": (4, 2e-5), "dear(fusion=25MiB)":
                  (6, 4e-5), "ddp+codec(ratio=8, encode=10GB/s, exchange=sum)": (6, 2e-5)}


def step_seconds(strategy, ranks, bits, ratio):
    """Backward of 60 ms, buckets ready at equal distances, one ring all-reduce after the other."""
    buckets, latency = STRATEGIES[strategy]
    squeeze = ratio * (8 if "codec" in strategy else 1)
    size, forward, backward = 102.2e6 / buckets, 0.03, 0.06
    finish = 0.0
    for i in range(buckets):
        net = 2 * (ranks - 1) * latency + 16 * size * (ranks - 1) / ranks / bits / squeeze
        encode = 2 * size / 10e9 if "codec" in strategy else 0
        finish = max(finish, backward * (i + 1) / buckets + encode) + net
    return forward + max(finish, backward)


def predictions(strategies, ratios):
    out = []
    for s in strategies:
        for n in (4, 16, 64):
            for gbit in (1, 2.5, 10, 25, 40, 100):
                for ratio in ratios:
                    t = step_seconds(s, n, gbit * 1e9, ratio)
                    out.append({"strategy": s, "changes_convergence": "codec" in s, "ranks": n,
                                "bandwidth_bit_per_s": gbit * 1e9, "compression_ratio": ratio,
                                "step_s": t, "interval_s": [0.96 * t, 1.05 * t],
                                "scaling_factor": 0.09 / t})
    out[3]["scaling_factor"] = None  # an undefined value must become a gap
    return {"predictions": out}


def timeline(mode, ranks, seed, late, strategy="ddp"):
    rng = random.Random(seed)
    jitter = lambda ms: int(ms * 1e6 * (1 if mode == "predicted" else rng.uniform(0.92, 1.1)))
    layers = ["conv1"] + [f"layer{i}.{j}" for i in range(1, 5) for j in range(2)] + ["fc"]
    names = layers + [f"bucket {i}" for i in range(4)] + ["optimizer"]
    events, steps, base = [], [], 0
    for step in range(1 if mode == "predicted" else 5):
        ends = []
        for rank in range(ranks):
            t = base + (late if rank else 0)
            steps.append({"rank": rank, "index": step, "start_ns": base, "end_ns": 0,
                          "variant": "steady"})
            for i in range(len(layers)):
                d = jitter(1.2 if i in (0, 9) else 2.1)
                events.append(["forward", "compute", rank, step, i, -1, -1, t, t + d, -1]); t += d
            free = 0
            for k, i in enumerate(reversed(range(len(layers)))):
                d = jitter(2.4 if i in (0, 9) else 4.3)
                events.append(["backward", "compute", rank, step, i, -1, -1, t, t + d, -1]); t += d
                if k in (1, 4, 7, 9):
                    b = (1, 4, 7, 9).index(k)
                    start = max(t, free); free = start + jitter(9.5 if b else 3)
                    events.append(["all-reduce", "network", rank, step, len(layers) + b, -1, t,
                                   start, free, 25 << 20])
            t = max(t, free); d = jitter(2.2)
            events.append(["update", "compute", rank, step, len(layers) + 4, -1, -1, t, t + d, -1])
            ends.append(t + d)
        for s in steps[-ranks:]:
            s["end_ns"] = max(ends)
        base = max(ends) + 300_000
    return {"document": "timeline", "schema": 1, "mode": mode, "workload": "resnet18",
            "strategy": strategy, "ranks": ranks, "names": names, "parameter_names": [],
            "parameter_sets": [], "steps": steps, "events": events, "counters": []}


def interval(value):
    return {"value": value, "low": 0.96 * value, "high": 1.05 * value}


def advice():
    candidates = []
    for s in STRATEGIES:
        t, lossy = step_seconds(s, 16, 10e9, 1), "codec" in s
        reason = ("Changes convergence, and no steps-to-target ratio is known." if lossy
                  else "Hides the exchange behind backward.")
        candidates.append(
            {"strategy": s, "standing": "unranked" if lossy else "ranked", "step_s": interval(t),
             "target_s": None if lossy else interval(t), "memory_bytes": 1.02e8,
             "trains": not lossy, "reason": reason})
    candidates.sort(key=lambda c: (c["standing"] == "unranked", c["step_s"]["value"]))
    ceiling = {"remedy": "infinite bandwidth", "step_s": 0.09, "step_low_s": 0.0876,
               "step_high_s": 0.0923,
               "reason": "a network without a limit: at most 70.4 % of the step as recorded."}
    turn = {"quantity": "bandwidth_bit_per_s", "low": 2.1e10, "high": 2.2e10, "below": "optimal",
            "above": "ddp"}
    return {"document": "advice", "schema": 1, "workload": "resnet50", "cluster": "lab",
            "ranks": 16, "bandwidth_bit_per_s": 1e10, "one_rank_step_s": 0.09, "current": "ddp",
            "verdict": "inconclusive", "best": candidates[0]["strategy"],
            "sentence": "The best two cannot be told apart.", "candidates": candidates,
            "ceilings": [ceiling], "turning_points": [turn], "notes": []}


def losses(seed):
    """As `train --losses` writes them."""
    rng = random.Random(seed)
    values = (2.3 / (1 + step / 20) + rng.uniform(0, 0.1) for step in range(200))
    return "".join(["step,loss\n", *(f"{step},{loss}\n" for step, loss in enumerate(values))])


def write_all(folder):
    """Writes the documents into `folder` (a Path) and returns their paths."""
    documents = {"strategies.json": predictions(STRATEGIES, [1]),
                 "ratios.json": predictions(["ddp"], [1, 2, 5, 10, 50, 100]),
                 "predicted.json": timeline("predicted", 2, 1, 0),
                 "measured.json": timeline("trained", 2, 2, 1_500_000), "advice.json": advice(),
                 "predicted-after.json": timeline("predicted", 2, 1, 0, "dear(fusion=25MiB)"),
                 "after.json": timeline("trained", 2, 3, 500_000, "dear(fusion=25MiB)"),
                 "measured.csv": losses(1), "after.csv": losses(2)}
    for name, document in documents.items():
        (folder / name).write_text(document if name.endswith(".csv") else json.dumps(document))
    return [folder / name for name in documents]
