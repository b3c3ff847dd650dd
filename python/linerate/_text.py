"""Text and HTML of what the command has none for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns as wide as their longest cell; numbers are aligned right."""
    cells = [[str(cell) for cell in head], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join("  ".join(c.rjust(w) if i else c.ljust(w)
                               for i, (c, w) in enumerate(zip(row, widths))) for row in cells)


def table_html(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of a notebook; without a head for rows that say themselves what they are."""
    from html import escape

    def line(tag: str, row: Sequence[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row) + "</tr>"

    above = f"<thead>{line('th', head)}</thead>" if head else ""
    return f"<table>{above}<tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"
