"""docs/validation.md and its pictures from docs/validation.json: what was predicted, what was
measured, by mode and by source."""
import collections
import html
import json
import math
import re
import statistics
import textwrap

MODES = {"nominal": "#0072b2", "recorded": "#009e73", "rehearse": "#e69f00", "train": "#cc79a7"}
SAYS = {"nominal": "steps that others published, from model, batch, one rank's step and the "
                   "network's kind",
        "recorded": "NCCL jobs, from their recordings and collective tables",
        "rehearse": "real collectives over shaped links, computation that waits",
        "train": "whole training steps over shaped links"}
QUIET = 0.05  # A/A noise of a setting above which its trained steps are told apart


def key_of(case):
    return " | ".join(str(case[k]) for k in ("mode", "workload", "network", "ranks", "strategy"))


def measured(case):
    return statistics.median(case["measured_s"])


def error(case):
    return case["predicted_s"] / measured(case) - 1


def inside(case):
    low, high = case["interval_s"]
    return low <= measured(case) <= high


def setting_of(case):
    return (case["mode"], case["workload"], case["network"], case["ranks"],
            case["source"] if case["mode"] == "nominal" else "")


def by_setting(cases):
    settings = collections.defaultdict(list)
    for c in cases:
        settings[setting_of(c)].append(c)
    return settings


def noise_of(cases):
    """A/A: the median difference of two measurements of one strategy; 0: there is one of each."""
    apart = [abs(a - b) / statistics.mean((a, b)) for c in cases
             for a, b in zip(c["measured_s"], c["measured_s"][1:])]
    return statistics.median(apart) if apart else 0


def worst_of(cases, count):
    return sorted(cases, key=lambda c: -abs(error(c)))[:count]


def best_is_right(cases):
    """(settings in which the strategy that is predicted to be the fastest is, ties within the noise
    among them; settings)."""
    right = count = 0
    for some in by_setting(cases).values():
        if len(some) < 2:
            continue
        count += 1
        said = min(some, key=lambda c: c["predicted_s"])
        right += measured(said) <= min(map(measured, some)) * (1 + max(0.01, 2 * noise_of(some)))
    return right, count


def row(title, cases):
    errors = [error(c) for c in cases]
    right, settings = best_is_right(cases)
    best = f"{right} of {settings}" if settings else "-"
    return (f"| {title} | {len(cases)} | {statistics.mean(map(abs, errors)):.1%} | "
            f"{statistics.mean(errors):+.1%} | {max(errors, key=abs):+.1%} | "
            f"{sum(map(inside, cases)) / len(cases):.0%} | {best} |")


def powers(ends):
    """The powers of ten between two logarithms, with their labels; 2 and 5 of them, too, if they
    are few."""
    digits = (1, 2, 5) if ends[1] - ends[0] < 3 else (1,)
    values = [digit * 10.0 ** k for k in range(math.floor(ends[0]), math.ceil(ends[1]) + 1)
              for digit in digits]
    return {v: f"{v:g}" for v in values if ends[0] <= math.log10(v) <= ends[1]}


class Picture:
    """A plot of logarithmic axes; without `x` of names, which the caller writes. `ticks`: places on
    the x axis and their labels, in place of powers of ten."""
    WIDTH, HEIGHT, LEFT, BOTTOM = 720, 480, 80, 50

    def __init__(self, x, y, x_title, y_title, ticks=None):
        self.x, self.y = (ends and [math.log10(end) for end in ends] for ends in (x, y))
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.WIDTH} '
                      f'{self.HEIGHT}" font-family="sans-serif" font-size="12">',
                      f'<rect width="{self.WIDTH}" height="{self.HEIGHT}" fill="white"/>']
        for ends, at, vertical in ((self.x, self.at_x, False), (self.y, self.at_y, True)):
            for value, label in ((ticks if ticks and not vertical else powers(ends)).items()
                                 if ends else ()):
                place = at(value)
                line = ((self.LEFT, place, self.WIDTH - 10, place)
                        if vertical else (place, 10, place, self.HEIGHT - self.BOTTOM))
                self.line(*line, "#dddddd")
                self.text(*((self.LEFT - 6, place + 4, label, "end") if vertical
                            else (place, self.HEIGHT - self.BOTTOM + 16, label, "middle")))
        self.text(self.WIDTH / 2, self.HEIGHT - 12, x_title, "middle")
        self.parts.append(f'<text transform="translate(18 {self.HEIGHT / 2}) rotate(-90)" '
                          f'text-anchor="middle">{html.escape(y_title)}</text>')

    def at_x(self, value):
        a, b = self.x
        return self.LEFT + (math.log10(value) - a) / (b - a) * (self.WIDTH - self.LEFT - 10)

    def at_y(self, value):
        a, b = self.y
        return self.HEIGHT - self.BOTTOM - (math.log10(value) - a) / (b - a) * (self.HEIGHT
                                                                                - self.BOTTOM - 10)

    def line(self, x1, y1, x2, y2, color, width=1):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{color}" stroke-width="{width}"/>')

    def dot(self, x, y, color, title):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}" '
                          f'fill-opacity=".8"><title>{html.escape(title)}</title></circle>')

    def text(self, x, y, words, anchor):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def legend(self, colours, x=None):
        """By name, from `x` on, else at the left."""
        x = self.LEFT + 16 if x is None else x
        for i, (name, colour) in enumerate(colours.items()):
            self.dot(x, 26 + 18 * i, colour, name)
            self.text(x + 10, 30 + 18 * i, name, "start")

    def write(self, file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join([*self.parts, "</svg>"]) + "\n")


def draw_steps(cases, file):
    least = min(min(measured(c), c["predicted_s"]) for c in cases) / 1.5
    most = max(max(measured(c), c["predicted_s"]) for c in cases) * 1.5
    plot = Picture((least, most), (least, most), "measured step, s",
                   "predicted step and its 90 % interval, s")
    plot.line(plot.at_x(least), plot.at_y(least), plot.at_x(most), plot.at_y(most), "#888888")
    for c in cases:
        x, color = plot.at_x(measured(c)), MODES[c["mode"]]
        low, high = (min(max(end, least), most) for end in c["interval_s"])
        plot.line(x, plot.at_y(low), x, plot.at_y(high), color)
        plot.dot(x, plot.at_y(c["predicted_s"]), color,
                 f"{key_of(c)}: {c['predicted_s']:.4g} s, measured {measured(c):.4g} s")
    plot.legend({m: colour for m, colour in MODES.items()
                 if any(c["mode"] == m for c in cases)})
    plot.write(file)


def source_of(case):
    """What a point of the second picture stands for."""
    return (case["source"].split(" (")[0].split(" results")[0]
            if case["mode"] == "nominal" else case["mode"])


def draw_errors(cases, file):
    sources = collections.defaultdict(list)
    for c in cases:
        sources[source_of(c)].append(c)
    names = list(sources)
    plot = Picture(None, (0.001, 1), "", "|predicted / measured - 1|")
    step = (Picture.WIDTH - Picture.LEFT - 10) / len(names)
    for i, name in enumerate(names):
        middle = Picture.LEFT + (i + 0.5) * step
        for k, c in enumerate(sources[name]):
            off = min(1, max(0.001, abs(error(c))))
            plot.dot(middle + (k % 9 - 4) * step / 14, plot.at_y(off), MODES[c["mode"]],
                     f"{key_of(c)}: {error(c):+.1%}")
        mean = statistics.mean(abs(error(c)) for c in sources[name])
        plot.line(middle - step / 3, plot.at_y(max(mean, 0.001)), middle + step / 3,
                  plot.at_y(max(mean, 0.001)), "black", 2)
        for line, words in enumerate((name.split("/")[-1], f"{len(sources[name])} cases")):
            plot.text(middle, Picture.HEIGHT - Picture.BOTTOM + 16 + 15 * line, words, "middle")
    plot.write(file)


def rows_by_mode(cases):
    for mode in MODES:
        some = [c for c in cases if c["mode"] == mode]
        if mode == "train":
            loud = {s for s, of in by_setting(some).items() if noise_of(of) > QUIET}
            for title, part in ((
                (f"train, A/A at most {QUIET:.0%}", [c for c in some if setting_of(c) not in loud]),
                ("train, other settings", [c for c in some if setting_of(c) in loud]))):
                if part:
                    yield row(title, part)
        elif some:
            yield row(mode, some)


def table(head, rows):
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *rows]


def wrapped(text, indent=""):
    return textwrap.wrap(text, 100, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def paragraph(text):
    return [*wrapped(text), ""]


def write_page(data, page):
    found = json.loads(data.read_text())
    cases, peers = found["cases"], found["peers"]
    worst = data.with_name("validation-worst.json")
    tasks = json.loads(worst.read_text()) if worst.exists() else {}
    pictures = page.parent / "pictures"
    draw_steps(cases, pictures / "validation-steps.svg")
    draw_errors(cases, pictures / "validation-errors.svg")
    text = ["# Predictions against what then happened", "",
            *paragraph(f"`bench/validation` wrote [{data.name}]({data.name}), {len(cases)} cases, "
                       "and this page from it (`bench/validation --page`). Predictions are written "
                       "before anything is measured. `bench/scoreboard` alone needs no root, and "
                       "shows what others would say of the published rows."),
            *[line for mode, says in SAYS.items() if any(c["mode"] == mode for c in cases)
              for line in wrapped(f"- **{mode}**: {says}.", "  ")], "",
            *paragraph("An error is of the predicted step, relative to the measured one; *inside* "
                       "counts steps within their 90 % interval. *Best*: the strategy that is "
                       "predicted to be the fastest of a setting is, ties within its noise among "
                       "them. A/A is the difference between two runs of one strategy."),
            *table(["mode", "cases", "mean error", "bias", "worst", "inside", "best"],
                   rows_by_mode(cases)), "",
            "![predicted against measured steps](pictures/validation-steps.svg)", "",
            "![errors by source; lines are means](pictures/validation-errors.svg)", "",
            "## The worst five", "",
            *table(["case", "predicted", "measured", "error", "most of it"],
                   [f"| {c['mode']}: {c['workload']}, `{c['strategy']}`, {c['ranks']} ranks, "
                    f"{c['network']} | {c['predicted_s']:.4g} s | {measured(c):.4g} s | "
                    f"{error(c):+.1%} | {tasks.get(key_of(c), 'no task of it was recorded')} |"
                    for c in worst_of(cases, 5)])]
    told = {key_of(c) for c in worst_of(cases, 5)}
    by_task = [(c, tasks[key_of(c)]) for c in worst_of([c for c in cases if key_of(c) in tasks
                                                        and key_of(c) not in told], 5)]
    if by_task:
        text += ["", "The next ones that were rehearsed or trained:", "",
                 *table(["case", "error", "most of it"],
                        [f"| {c['mode']}: {c['workload']}, `{c['strategy']}`, {c['ranks']} ranks | "
                         f"{error(c):+.1%} | {said} |" for c, said in by_task])]
    if peers:
        text += ["", "## Next to PyTorch's DDP", "",
                 *paragraph("Seconds a step on two ranks; computing alone ends in a barrier, the "
                            "floor has linerate's parts and a network without latency."),
                 *table(["model", "Gbit/s", "strategy", "computing alone", "DDP", "linerate",
                         "linerate / DDP", "floor"],
                        [f"| {p['model']} | {p['bandwidth_bit_per_s'] / 1e9:g} | `{p['strategy']}` "
                         f"| {p['compute_only_s']:.4g} | {p['ddp_s']:.4g} | {p['linerate_s']:.4g} "
                         f"| {p['linerate_s'] / p['ddp_s']:.3f} | "
                         f"{format(p['floor_s'], '.4g') if p['floor_s'] else '-'} |"
                         for p in peers])]
    page.write_text(re.sub(r"(?<=\d)%", " %", "\n".join(text)) + "\n")
