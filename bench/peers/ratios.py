"""What ranks have measured as rows and lines: times, ratios round by round, bounds and whether they
hold.

A ratio is the median over rounds of a block's time over that of another contender in the same
round, with the least and the largest. A bound "holds" if the median keeps it, is "missed" if every
round is above it, else "not told apart".
"""
import statistics


def verdict(ratios, bound):
    """Of ratios in rising order; "" without a bound."""
    if bound is None:
        return ""
    return ("holds" if statistics.median(ratios) <= bound else "missed"
            if ratios[0] > bound else "not told apart")


def ratios_of(name, contender, rows, rate):
    """A contender's ratios to those that it is compared with, of whom there are times. `rate`: None
    leaves bounds out."""
    found = []
    for against in contender.against:
        if against.of not in rows or against.part not in rows[against.of]["blocks"]:
            continue
        ratios = sorted(a / b for a, b in zip(rows[name]["blocks"][against.part],
                                              rows[against.of]["blocks"][against.part]))
        bound = against.bound(rate) if rate is not None else None
        found.append({"of": against.of, "part": against.part, "median": statistics.median(ratios),
                      "least": ratios[0], "largest": ratios[-1], "at_most": bound,
                      "verdict": verdict(ratios, bound)})
    return found


def rows_of(result, contenders, rate):
    """One dict a contender, in the order of `contenders`; those left out have the reason."""
    return [row_of(name, contenders[name], result, rate) for name in contenders
            if name in result["rows"] or name in result["left_out"]]


def row_of(name, contender, result, rate):
    if name in result["left_out"]:
        what, reason = result["left_out"][name]
        return {"contender": name, "status": what, "reason": reason}
    found = result["rows"][name]
    blocks = found["blocks"]
    row = {"contender": name, "status": "measured", "step_s": statistics.median(blocks["step"]),
           "blocks_s": blocks["step"], "processor_s": statistics.median(blocks["processor"]),
           "loss": found["loss"], "weights_from_ddp": found["difference"],
           "endured_steps": found["endured"], "plan": found["plan"], "trial": found["trial"],
           "ratios": ratios_of(name, contender, result["rows"], rate)}
    if "second_order" in blocks:
        row["second_order_s"] = statistics.median(blocks["second_order"])
    return row


def ratio_words(ratio):
    words = (
        f"{ratio['median']:.3f} ({ratio['least']:.3f} to {ratio['largest']:.3f}) of {ratio['of']}")
    if ratio["part"] == "second_order":
        words = f"second-order steps {words}"
    return words + (f", at most {ratio['at_most']:.2f}: {ratio['verdict']}"
                    if ratio["at_most"] is not None else "")


def weights_words(difference):
    return "DDP's bit for bit" if difference == 0 else f"{difference:.1e} from DDP's"


def lines_of(row, width=26):
    """A row's lines of the table."""
    if row["status"] != "measured":
        return [f"  {row['contender']:{width}} {row['status']}: {row['reason']}"]
    line = (f"  {row['contender']:{width}} {1e3 * row['step_s']:8.1f} "
            f"{1e3 * row['processor_s']:8.1f} ms")
    notes = ([f"second-order steps {1e3 * row['second_order_s']:.1f} ms"]
             if "second_order_s" in row else [])
    if row["loss"] is not None:
        notes.append(f"loss {row['loss']:.4f}")
    if row["weights_from_ddp"] is not None:
        notes.append(f"weights {weights_words(row['weights_from_ddp'])}")
    if row["endured_steps"]:
        notes.append(f"{row['endured_steps']} steps more without a hang")
    if row["plan"] and row["plan"] not in row["contender"]:
        notes.append(f"plan {row['plan']}")
    first, *others = [ratio_words(r) for r in row["ratios"]] or [""]
    return ["  ".join(filter(None, [line, first, "; ".join(notes)])),
            *(" " * (width + 25) + words for words in others)]


def missed(rows):
    """The bounds that do not hold."""
    return [f"{row['contender']}: {r['verdict']} (of {r['of']})" for row in rows
            for r in row.get("ratios", []) if r["verdict"] not in ("", "holds")]
