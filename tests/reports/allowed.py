"""What formulas in reports may be made of: the LaTeX that GitHub typesets, and MathML Core."""

from __future__ import annotations

import re

COMMANDS = frozenset({
    r"\cdot", r"\frac", r"\sum", r"\left", r"\right", r"\underbrace", r"\text", r"\mathrm", r"\max", r"\min", r"\ell", r"\,", r"\ldots",
    r"\lfloor", r"\rfloor", r"\lceil", r"\rceil", r"\bmod", r"\log", r"\le", r"\ge", r"\ne", r"\lt", r"\gt",
    r"\_", r"\#", r"\$", r"\%", r"\&", r"\{", r"\}",
})  # fmt: skip
# The elements of MathML Core that a formula of ours may be made of.
ELEMENTS = frozenset(
    {"math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "msup", "msub", "msubsup", "mfrac", "munder", "mover", "munderover"}
)


def commands_in(source: str) -> set[str]:
    """The commands that a LaTeX text uses."""
    return set(re.findall(r"\\(?:[A-Za-z]+|.)", source))
