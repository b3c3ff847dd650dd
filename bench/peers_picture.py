"""A picture of steps over bandwidths, drawn from what bench/python_peers.py wrote: a line for
PyTorch's DDP and for each strategy of linerate's."""
from validation_page import Picture

COLOURS = ("#000000", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#d55e00", "#56b4e9")


def rate_words(bits):
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"


def lines_of(rows):
    """By contender, as they first come: its rows by bandwidth."""
    lines = {}
    for row in sorted(rows, key=lambda row: row["bandwidth_bit_per_s"]):
        whose = "PyTorch" if row["contender"].startswith("DDP") else "linerate"
        lines.setdefault(f"{whose} {row['contender']}", []).append(row)
    return lines


def draw(found, file):
    """`found`: what --json wrote. A bar goes from the least to the largest round."""
    rows = [r for r in found["rows"] if r["bandwidth_bit_per_s"] is not None]
    rates = sorted({r["bandwidth_bit_per_s"] for r in rows})
    if len(rates) < 2:
        raise ValueError("a picture takes two rates or more")
    blocks = [1e3 * s for r in rows for s in r["blocks_s"]]
    plot = Picture((rates[0] / 1.25, rates[-1] * 1.25), (min(blocks) / 1.25, max(blocks) * 1.6),
                   "bandwidth of each rank's link", "step, ms", {r: rate_words(r) for r in rates})
    lines = lines_of(rows)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(lines)}
    for name, points in lines.items():
        at = [(plot.at_x(p["bandwidth_bit_per_s"]), p) for p in points]
        for (x, p), (next_x, q) in zip(at, at[1:]):
            plot.line(x, plot.at_y(1e3 * p["step_s"]), next_x, plot.at_y(1e3 * q["step_s"]),
                      colours[name], 2)
        for x, p in at:
            least, most = (plot.at_y(1e3 * end(p["blocks_s"])) for end in (min, max))
            plot.line(x, least, x, most, colours[name])
            plot.dot(x, plot.at_y(1e3 * p["step_s"]), colours[name],
                     f"{name}, {rate_words(p['bandwidth_bit_per_s'])}: {1e3 * p['step_s']:.3g} ms")
    plot.legend(colours, plot.WIDTH - 250)
    plot.write(file)
