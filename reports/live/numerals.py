"""The digits at the end of a text: 124,439,808, 124 439 808, 1.24 × 10^8, 2^20 or 1/2. Each has one reading, or none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import BadInputError

MOST_DIGITS = 100
LATEX_COMMA = "{,}"  # 124{,}439{,}808, without the space that LaTeX sets behind a comma
GROUP_SPACES = " \u00a0\u202f\u2009"

_TIMES = ("\\times", "\\cdot", "\\*", "×", "·", "⋅", "x", "*")
_DIGITS = "0123456789"
_RAISED = "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_UP = str.maketrans(f"{_RAISED}−", "+-0123456789-")
_NUMBER = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")
_GROUPED = re.compile(rf"(?<![\w.,])(?<!\w-)[0-9]{{1,3}}(?P<space>[{GROUP_SPACES}])[0-9]{{3}}(?:(?P=space)[0-9]{{3}})*(?:\.[0-9]+)?$")
_FRACTION = re.compile(r"(?<![0-9])([0-9]{1,15})/([0-9]{1,15})$")
_BASE = re.compile(r"(?<![0-9])[0-9]{1,6}$")
_EXPONENT_TAIL = re.compile(rf"(?P<mark>\^|\*\*|<sup>|)(?P<open>\{{?)(?P<exponent>[+\-−]?[0-9]+|[{_RAISED}]+)(?P<close>\}}?|</sup>)$")
_CLOSE = {"^": "", "^{": "}", "**": "", "<sup>": "</sup>", "": ""}
_ONE_TO_THREE = re.compile("[+-]?[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number after the text ``head``. ``digits``: without ``exponent``, of ten. ``exact``: the value of a power or a fraction."""

    head: str
    digits: str
    exponent: int = 0
    exact: Fraction | None = None


def numeral_at_end(text: str, emphasized: bool = False) -> Numeral | None:
    """The number that ends the text, ``None`` if there is none. ``emphasized``: a mark of emphasis follows, so ``**`` may be one too.
    Raises ``BadInputError`` if it is too long."""
    head, exponent = _split_exponent(text, emphasized)
    if exponent is None:
        return _fraction(text) or _decimal(text, 0)
    mantissa = _before_ten(head, emphasized)
    return _power(text, head, exponent) if mantissa is None else _decimal(mantissa, _integer(exponent, f"10{text[len(head) :]}"))


def _decimal(text: str, exponent: int) -> Numeral | None:
    """``1,234.5``, ``124 439 808`` or ``1.24e8`` at the end of a text."""
    mantissa, exponent = (text, exponent) if exponent else _scientific(text)
    grouped = _GROUPED.search(mantissa)
    head = mantissa[: grouped.start()] if grouped else _before_digits(mantissa)
    digits = mantissa[len(head) :]
    if len(digits) > MOST_DIGITS:
        raise BadInputError(f"a number of {len(digits)} characters or more, Napkin reads at most {MOST_DIGITS}: write it as 1.5e30")
    if not grouped and not _NUMBER.fullmatch(digits.replace(LATEX_COMMA, ",")):
        return None
    return Numeral(head, digits, exponent)


def _before_digits(text: str) -> str:
    """The text before the digits at its end."""
    head = text.rstrip(f"{_DIGITS},.")
    while head.endswith(LATEX_COMMA):
        head = head.removesuffix(LATEX_COMMA).rstrip(f"{_DIGITS},.")
    return head


def _scientific(text: str) -> tuple[str, int]:
    """(text before the exponent of ``1.5e30``, exponent); exponent 0 if there is none."""
    head = text.rstrip(_DIGITS)
    sign = head[-1:] if head.endswith(("+", "-")) else ""
    bare = head.removesuffix(sign)
    if head == text or not bare.endswith(("e", "E")) or bare[-2:-1] not in (*_DIGITS,):
        return text, 0
    return bare[:-1], _integer(text[len(bare) :], text[len(bare) - 1 :])


def _split_exponent(text: str, emphasized: bool) -> tuple[str, str | None]:
    """(text before an exponent at the end, the exponent) for ``10^8``, ``10^{8}``, ``10⁸``, ``10**8`` and ``10<sup>8</sup>``."""
    tail = _EXPONENT_TAIL.search(text)
    if tail is None or _CLOSE.get(f"{tail['mark']}{tail['open']}") != tail["close"]:
        return text, None
    exponent = tail["exponent"]
    head = text[: tail.start()]
    is_raised = exponent[0] in _RAISED
    is_emphasis = tail["mark"] == "**" and (emphasized or "*" in head)
    if is_raised == bool(tail["mark"]) or is_emphasis or head[-1:] not in (*_DIGITS,):
        return text, None
    return head, exponent.translate(_UP)


def _before_ten(text: str, emphasized: bool) -> str | None:
    """The text before ``× 10``; ``None`` if the text does not end in it."""
    if not text.endswith("10"):
        return None
    head = text[:-2]
    sign = next((sign for sign in _TIMES if head.rstrip(GROUP_SPACES).endswith(sign)), "")
    spaced = head.endswith(tuple(GROUP_SPACES))
    mantissa = head.rstrip(GROUP_SPACES).removesuffix(sign)
    may_be_emphasis = sign == "*" and not spaced and (emphasized or "*" in mantissa)
    return mantissa.rstrip(GROUP_SPACES) if sign and not may_be_emphasis else None


def _power(text: str, head: str, exponent: str) -> Numeral | None:
    """``2^20``, exactly; ``None`` if the base is no integer of up to six digits, above 0."""
    base = _BASE.search(head)
    if base is None or not int(base[0]):
        return None
    value = Fraction(int(base[0])) ** _integer(exponent, text[base.start() :])
    return Numeral(text[: base.start()], text[base.start() :], exact=value)


def _fraction(text: str) -> Numeral | None:
    """``1/2``, exactly."""
    match = _FRACTION.search(text)
    if match is None or not int(match[2]):
        return None
    return Numeral(text[: match.start()], match[0], exact=Fraction(int(match[1]), int(match[2])))


def _integer(digits: str, shown: str) -> int:
    if not _ONE_TO_THREE.fullmatch(digits):
        shown = shown if len(shown) <= 20 else f"{shown[:19]}…"
        raise BadInputError(f"the exponent of {shown} is not a number of one to three digits: write it as 1.5e30")
    return int(digits)
