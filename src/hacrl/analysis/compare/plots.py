"""Plots as plain SVG: white background on light and dark pages, colour-blind safe colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from hacrl.analysis.compare.statistics import Difference, Estimate, Verdict

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")
"""Okabe and Ito's palette, without its palest colour."""
DASHES = ("", "7 3", "2 2", "9 3 2 3")
MARKS: dict[Verdict, str] = {"better": "#0072b2", "worse": "#d55e00", "no difference seen": "#8a8a8a"}
INK, FAINT = "#333333", "#d5d5d5"

Points = Sequence[tuple[float, float]]


ACROSS = 6
"""Panels per row: with more they would be too small to read."""


def forest(panels: Mapping[str, Mapping[str, Difference | None]], against: str) -> str:
    """Differences with their intervals: a panel per setting, a row per method; None leaves a row empty."""
    methods = list(dict.fromkeys(method for rows in panels.values() for method in rows))
    found = [row for rows in panels.values() for row in rows.values() if row]
    widest = max([0.01, *(abs(end) for row in found for end in (row.interval.low, row.interval.high))])
    reach = min(1.0, widest)  # the largest possible difference in accuracy
    left, width, line = 190, 130, 18
    shelf = line * len(methods) + 56
    parts = [_text(12, 20, f"Difference to {against}; bars are corrected 95% intervals", size=13)]
    for number, (setting, rows) in enumerate(panels.items()):
        column, top = number % ACROSS, 56 + number // ACROSS * shelf
        x0 = left + column * (width + 14)
        parts.append(_text(x0 + width / 2, top - 10, setting, anchor="middle", weight="bold"))
        parts += _panel(rows, methods, (x0, top, width, line), reach)
        if column == 0:
            for row, method in enumerate(methods):
                parts.append(_text(left - 10, top + line * (row + 0.5) + 4, method, anchor="end"))
    across, shelves = min(ACROSS, len(panels)), -(-len(panels) // ACROSS)
    return _sheet(left + across * (width + 14) + 10, 34 + shelves * shelf, parts)


def _panel(
    rows: Mapping[str, Difference | None], methods: Sequence[str], box: tuple[float, ...], reach: float
) -> list[str]:
    x0, top, width, line = box
    bottom, middle = top + line * len(methods), x0 + width / 2
    parts = [
        f'<rect x="{x0}" y="{top}" width="{width}" height="{bottom - top}" fill="none" stroke="{FAINT}"/>',
        _line(middle, top, middle, bottom, INK, 1, "3 2"),
        _text(x0, bottom + 14, f"{-reach:+.2f}", size=10),
        _text(middle, bottom + 14, "0", anchor="middle", size=10),
        _text(x0 + width, bottom + 14, f"{reach:+.2f}", anchor="end", size=10),
    ]
    for row, method in enumerate(methods):
        difference = rows.get(method)
        if difference is None:
            continue
        y, colour = top + line * (row + 0.5), MARKS[difference.verdict]
        low, mean, high = (
            middle + max(-1.0, min(1.0, value / reach)) * width / 2
            for value in (difference.interval.low, difference.interval.mean, difference.interval.high)
        )
        fill = "#ffffff" if difference.verdict == "no difference seen" else colour
        parts.append(_line(low, y, high, y, colour, 2))
        parts.append(
            f'<circle cx="{mean:.1f}" cy="{y}" r="4" fill="{fill}" stroke="{colour}" stroke-width="2"/>'
        )
    return parts


def bars(panels: Mapping[str, Mapping[str, Estimate]], title: str) -> str:
    """Accuracies with their intervals as bars: a panel per setting, a bar of its own colour per row."""
    rows = list(dict.fromkeys(row for found in panels.values() for row in found))
    left, width, line, gap = 12 + 7 * max(map(len, rows), default=0), 180, 24, 22
    top, bottom = 64, 64 + line * len(rows)
    parts = [_text(12, 22, title, size=14, weight="bold")]
    for row, name in enumerate(rows):
        parts.append(_text(left - 10, top + line * (row + 0.5) + 4, name, anchor="end", size=12))
    for number, (setting, found) in enumerate(panels.items()):
        x0 = left + number * (width + gap)
        parts.append(_text(x0, top - 10, setting, weight="bold", size=12))
        parts.append(_line(x0, top - 4, x0, bottom, INK))
        for row, name in enumerate(rows):
            if name in found:
                parts += _bar(found[name], x0, top + line * row, width, COLOURS[row % len(COLOURS)])
    return _sheet(left + len(panels) * (width + gap), bottom + 16, parts)


def _bar(value: Estimate, x0: float, y: float, width: float, colour: str) -> list[str]:
    """A bar from 0 to 1, its interval, and the number beside it."""
    room = width - 44
    low, mean, high = (x0 + max(0.0, min(1.0, at)) * room for at in (value.low, value.mean, value.high))
    shape = f'x="{x0:.1f}" y="{y + 4:.1f}" width="{mean - x0:.1f}" height="15"'
    return [
        f'<rect {shape} fill="{colour}" fill-opacity="0.75"/>',
        _line(low, y + 11.5, high, y + 11.5, INK, 2),
        _text(max(mean, high) + 6, y + 16, f"{value.mean:.2f}", size=12),
    ]


def lines(curves: Mapping[str, Points], title: str, x_name: str, y_name: str) -> str:
    """Curves with a legend."""
    left, top, width, height = 60, 40, 460, 260
    points = [point for curve in curves.values() for point in curve]
    x_high = max(x for x, _ in points) or 1.0
    y_low, y_high = min(y for _, y in points), max(y for _, y in points)
    span = (y_high - y_low) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return left + x / x_high * width, top + (y_high - y) / span * height

    parts = [_text(left, 22, title, size=13, weight="bold")]
    for part in range(5):
        y = y_low + span * part / 4
        at = place(0, y)[1]
        parts += [_line(left, at, left + width, at, FAINT), _text(left - 8, at + 4, f"{y:.3f}", anchor="end")]
        x = x_high * part / 4
        parts.append(_text(place(x, y_low)[0], top + height + 18, f"{x:,.0f}", anchor="middle"))
    parts.append(_text(left + width / 2, top + height + 38, x_name, anchor="middle"))
    parts.append(_text(left, top - 6, y_name, size=10))
    for number, (method, curve) in enumerate(curves.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in curve)
        style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{path}" fill="none" {style}/>')
        y = top + 10 + 18 * number
        parts += [
            _line(left + width + 16, y, left + width + 44, y, colour, 2, dash),
            _text(left + width + 50, y + 4, method),
        ]
    return _sheet(left + width + 210, max(top + height + 50, top + 18 * len(curves) + 20), parts)


def _sheet(width: float, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif">'
    )
    paper = f'<rect width="{width:.0f}" height="{height:.0f}" rx="6" fill="#ffffff"/>'
    return "\n".join([head, paper, *parts, "</svg>"]) + "\n"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, weight: str = "normal"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" font-weight="{weight}" fill="{INK}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: int = 1, dash: str = "") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"/>'
