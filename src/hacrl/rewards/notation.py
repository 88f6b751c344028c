r"""One spelling for the many ways to write an answer: `\dfrac12`, `1/2 \text{ cm}`, `\$0.50`, `10,\!080`."""

from __future__ import annotations

import re
from fractions import Fraction

from hacrl.rewards.extract import closing_brace

MAX_LENGTH = 2000
"""Longer text is not an answer, as no reference is that long: it is left as it is."""
MAX_FONTS = 50
"""At most this many `\\text{...}` are unwrapped: each takes a pass over the answer."""
MAX_EXPONENT = 400
"""Larger powers of ten are left to symbolic comparison: written out they would need too much memory."""
MAX_DIGITS = 1000
"""Longer numbers are left to symbolic comparison too."""

_DROPPED = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|big|Big|bigg|Bigg)(?![A-Za-z])\.?"
    r"|\\[!,;: ]|\\q?quad(?![A-Za-z])|\\\(|\\\)|\\\[|\\\]|(?<!\\)\$|[\u200b\u00a0]"
)
_SPELLINGS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:le|leqslant)(?![A-Za-z])|≤", r"\\leq "),
        (r"\\(?:ge|geqslant)(?![A-Za-z])|≥", r"\\geq "),
        (r"\\neq?(?![A-Za-z])|≠", r"\\neq "),
        (r"[\u2212\u2013]", "-"),
        (r"π", r"\\pi "),
        (r"√(\d+)", r"\\sqrt{\1}"),
        (r"√", r"\\sqrt"),
        (r"\\infin(?![A-Za-z])|∞", r"\\infty "),
        (r"\\(?:cup|bigcup)(?![A-Za-z])|\u222a", r"\\cup "),
        (r"\\in(?![A-Za-z])|∈", r"\\in "),
        (r"\\pm(?![A-Za-z])|±", r"\\pm "),
        (r"[\u00d7\u00b7]", r"\\times "),
        (r"\{,\}", ","),
        (r"\\(?:lbrace|{)", r"\\{"),
        (r"\\(?:rbrace|})", r"\\}"),
        (r"\\begin\{[bB]matrix\}", r"\\begin{pmatrix}"),
        (r"\\end\{[bB]matrix\}", r"\\end{pmatrix}"),
        (r"\\(?:text|mbox|textrm)\{\s*(?:and|or)\s*\}|(?<=[\s\d})])(?:and|or)(?=[\s\\(\d-])", ","),
        (r"\^\s*(?:\{\s*)?(?:\\circ|\\degree)\s*\}?|\\degree(?![A-Za-z])|°", ""),
        (r"\\%", "%"),
        (r"\\langle(?![A-Za-z])", "("),
        (r"\\rangle(?![A-Za-z])", ")"),
        (r"(\d)\s*[eE]([+-]?\d+)(?![\w.])", r"\1\\times 10^{\2}"),
    ]
]
_FONT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathsf|mbox|hbox|emph|operatorname)\s*\{"
)
_UNIT = (
    r"(?:degrees?|radians?|percent|dollars?|cents?|euros?|pounds?|units?|square|sq|cubic|per|inch(?:es)?|in|feet|"
    r"foot|ft|yards?|miles?|mph|(?:kilo|centi|milli)?met(?:er|re)s?|[kcmn]m|(?:kilo)?grams?|kg|mg|"
    r"sec(?:onds?)?|min(?:utes?)?|hours?|hrs?|days?|weeks?|months?|years?|hertz|[kMG]?Hz|joules?|kJ|[kMG]?eV|"
    r"watts?|kW|volts?|ohms?|newtons?|pascals?|k?Pa|kelvin|mol(?:es?)?|lit(?:er|re)s?|m[Ll])"
)
"""No single letters: outside `\\text{}`, the m of `12 m` may be a variable."""
_BARE_UNIT = re.compile(
    rf"(?<=[\d}})])(?:\s*{_UNIT}(?:\s*/\s*[A-Za-z]+)?(?:\^\{{?-?\d\}}?)?(?![A-Za-z])\.?){{1,8}}$"
)
"""Eight at most (`3 square feet per hour` has four): without a limit, `cm^2 cm^2 ...` is quadratic work."""
_CURRENCY = re.compile(r"^(-?)\s*(?:\\\$|[£€¥])\s*")
_THOUSANDS = re.compile(r"(?<![\d.])[+-]?\d{1,3}(?:(?:,\s*| )\d{3})+(?!\d)(?:\.\d+)?")
_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_DECIMAL = re.compile(rf"([+-]?)({_NUMBER})(?:(?:\\times|\\cdot|\*)10\^(?:\{{([+-]?\d+)\}}|(\d)))?")
_POWER = re.compile(r"([+-]?)()10\^(?:\{([+-]?\d+)\}|(\d))")
_FRACTION = re.compile(r"([+-]?)(\d*)\\frac(?:\{(-?\d+)\}|(\d))(?:\{(-?\d+)\}|(\d))")
_RATIO = re.compile(r"([+-]?)(\d+(?= ))? ?(\d+)()/(\d+)()")


def tidy(answer: str) -> str:
    """The answer without decoration, in one spelling; answers that are equal after this mean the same.

    It runs in the trainer, without a deadline, on whatever a model wrote: the work is bounded.
    """
    text = answer.strip()
    if len(text) > MAX_LENGTH:
        return text
    text = _CURRENCY.sub(r"\1", _strip_dollars(text))
    text = _DROPPED.sub(" ", text)
    text = _CURRENCY.sub(r"\1", text.strip())
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    text = _plain_fonts(text).strip()
    text = text.rstrip(".,;: ") if not text.endswith("\\.") else text
    text = _BARE_UNIT.sub("", text)
    return re.sub(r"\s+", " ", text).strip()


def compact(text: str) -> str:
    """Tidied text without spaces, except the one that ends a command's name."""
    return re.sub(r"(?<!\\)\s+", "", re.sub(r"(\\[A-Za-z]+)\s+(?=[A-Za-z])", r"\1\\ ", text))


def as_number(text: str) -> Fraction | None:
    r"""The exact value of tidied text that is a plain number: `1,450`, `1\frac{4}{5}`, `2\times 10^{3}`."""
    text = text.strip()
    if len(text) > MAX_DIGITS:
        return None
    if _THOUSANDS.fullmatch(text):
        text = re.sub(r"[, ]", "", text)
    text = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)
    if match := _DECIMAL.fullmatch(text) or _POWER.fullmatch(text):
        sign, mantissa, *powers = match.groups()
        power = int(powers[0] or powers[1] or 0)
        if abs(power) > MAX_EXPONENT:
            return None
        value = Fraction(mantissa or "1") * Fraction(10) ** power
    elif match := _FRACTION.fullmatch(text) or _RATIO.fullmatch(text):
        sign, whole, *parts = match.groups()
        top, bottom = int(parts[0] or parts[1]), int(parts[2] or parts[3])
        if bottom == 0:
            return None
        value = int(whole or 0) + Fraction(top, bottom)
    else:
        return None
    return -value if sign == "-" else value


def _strip_dollars(text: str) -> str:
    """Without the `$...$` around the whole answer."""
    while len(text) > 1 and text[0] == "$" and text[-1] == "$" and not text.endswith("\\$"):
        text = text[1:-1].strip()
    return text


def _plain_fonts(text: str) -> str:
    r"""Unwrap `\text{east}`; drop `\text{ cm}^2` after a value, where it is a unit."""
    for _ in range(MAX_FONTS):
        match = _FONT.search(text)
        end = closing_brace(text, match.end()) if match else None
        if match is None or end is None:
            return text
        before, inner, after = text[: match.start()].rstrip(), text[match.end() : end], text[end + 1 :]
        power = re.match(r"\s*\^\s*(?:\{-?\d+\}|-?\d)", after)
        is_unit = bool(re.search(r"[\d})]$", before)) and bool(re.search(r"[A-Za-z]", inner))
        if is_unit:
            text = f"{before} {after[power.end() :] if power else after}"
        else:
            text = f"{before} {inner} {after}" if before or after else inner
    return text
