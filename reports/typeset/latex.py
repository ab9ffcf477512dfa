"""Expression trees as LaTeX, with few commands, all of which GitHub's Markdown and MathML converters know.

A formula is a tuple of pieces, one for each top-level term with its operator in front: pages break lines between
pieces, never inside one.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator

from calc.errors import NapkinError
from calc.symbolic.expression import (
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Labelled,
    Name,
    Negative,
    Number,
    OverLayers,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
    bare,
)
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text
from reports.typeset.escape import hidden
from reports.typeset.plain import numbered

LABEL_LENGTH = 104  # the longest label of our own, a tensor kept for a fused attention, is not cut
WIDE = 26  # characters of one piece beyond which it does not fit a phone's screen
BRACED_TERMS, BRACED_LABEL = 4, 14  # what braces with labels under them can carry

_RELATIONS = {"Eq": "=", "Ne": r"\ne", "Le": r"\le", "Ge": r"\ge", "Lt": r"\lt", "Gt": r"\gt"}
_COMPARISONS = {"==": "=", "!=": r"\ne", "<=": r"\le", ">=": r"\ge", "<": r"\lt", ">": r"\gt"}
_GREEK_INDEX = {"l": r"\ell", "ell": r"\ell", "layer": r"\ell"}


def pieces(tree: Expression) -> tuple[str, ...]:
    """The formula as LaTeX fragments, in order; joined by spaces they are the whole."""
    match tree:
        case Sum(terms) if terms:
            return tuple(p for i, t in enumerate(terms) for p in _split(t, first=i == 0))
        case FunctionCall("Max", items) if items:
            return tuple(_maximum(items))
        case _:
            return tuple(_split(tree, first=True))


def _split(term: Expression, *, first: bool) -> list[str]:
    """A term with its sign; a wide one that ends in a bracketed sum is split inside the bracket, which then does not stretch."""
    whole = _leading(term, first=first)
    if width(whole) <= WIDE or isinstance(term, Labelled):
        return [whole]
    match term:
        case OverLayers(_, _, Sum() as inner):
            head = _over(term)
        case Product((*factors, Sum() as inner)) if factors:
            head = _product(tuple(factors))
        case Sum() as inner:
            head = ""
        case _:
            return [whole]
    opened = [f"{'' if first else '+'}{head}(", *pieces(inner)]
    opened[0:2] = [opened[0] + opened[1]]
    opened[-1] += ")"
    return opened


Row = tuple[tuple[str, ...], str]


def labelled_rows(tree: Expression, *, braces: bool = True) -> tuple[Row, ...]:
    """The terms of a sum in pieces, each with its label apart, where braces under them would not be readable or are not wanted; else
    none."""
    terms = tree.terms if isinstance(tree, Sum) else (tree,)
    labels = [t.label if isinstance(t, Labelled) else "" for t in terms]
    if not any(labels) or (braces and 1 < len(terms) <= BRACED_TERMS and max(map(len, labels)) <= BRACED_LABEL and not _wide(terms)):
        return ()
    return tuple((tuple(_split(_unlabelled(t), first=i == 0)), label) for i, (t, label) in enumerate(zip(terms, labels, strict=True)))


def _wide(terms: tuple[Expression, ...]) -> bool:
    return any(isinstance(t, Labelled) and width(latex(t.body)) > WIDE for t in terms)


def _unlabelled(tree: Expression) -> Expression:
    return tree.body if isinstance(tree, Labelled) else tree


def width(piece: str) -> int:
    """Characters that a piece is set in, about; an operator takes its space on both sides."""
    shown = piece.replace(r"\cdot", "·").replace(r"\sum", "ΣΣ").replace("+", "+++").replace("-", "---")
    for command in (r"\left", r"\right", r"\underbrace", r"\text", r"\mathrm", r"\frac", r"\ell", r"\,", "{", "}", "^", "_", " "):
        shown = shown.replace(command, "")
    return len(shown)


def _leading(term: Expression, *, first: bool) -> str:
    if isinstance(term, Negative):
        return f"-{_factor(term.body, tight=True)}"
    if isinstance(term, Labelled) and isinstance(term.body, Negative) and not first:
        return f"-{_braced(_factor(term.body.body, tight=True), term.label)}"
    written = _addend(term)
    return written if first else f"+{written}"


def _maximum(items: tuple[Expression, ...]) -> Iterator[str]:
    """``max(a + b, c)`` in pieces. The parentheses are not stretchy: they stand in different pieces. Many names in a row are numbered, and
    those between the second and the last go without saying."""
    if numbered(items):
        first, second, *_, last = (latex(item) for item in items)
        yield from (rf"\max({first},", f"{second},", r"\ldots,", f"{last})")
        return
    for i, item in enumerate(items):
        inner = list(pieces(item))
        inner[0] = rf"\max({inner[0]}" if i == 0 else inner[0]
        inner[-1] += ")" if i == len(items) - 1 else ","
        yield from inner


def latex(tree: Expression) -> str:
    """The whole tree as one LaTeX formula."""
    match tree:
        case Number(int() as value):
            return number(value)
        case Name(name):
            return name_latex(name)
        case Sum(terms):
            return " ".join(pieces(tree)) if terms else "0"
        case Product(factors):
            return _product(factors)
        case Power(base, Number(exponent)):
            return f"{_base(base)}^{{{exponent}}}"
        case Quotient(Product((Number() as number_, *factors)), Number() as bottom) if factors:
            return _product((Quotient(number_, bottom), *factors))
        case Quotient(top, bottom):
            return rf"\frac{{{latex(top)}}}{{{latex(bottom)}}}"
        case Negative(body):
            return f"-{_factor(body, tight=True)}"
        case OverLayers(_, _, body):
            return f"{_over(tree)} {_factor(body, tight=True)}"
        case Labelled(body, label):
            return _braced(latex(body), label)
        case FunctionCall("Max", _):
            return " ".join(pieces(tree))
    return _atom(tree)


def _over(tree: OverLayers) -> str:
    return rf"\sum_{{{_index(tree.index)}=1}}^{{{latex(tree.upper)}}}"


def number(value: int) -> str:
    """Digits in groups of three: ``124{,}439{,}808``."""
    return f"{value:,}".replace(",", "{,}")


def _product(factors: tuple[Expression, ...]) -> str:
    if not factors:
        return "1"
    out = latex(factors[0]) if isinstance(factors[0], Quotient) else _factor(factors[0])
    for before, factor in itertools.pairwise(factors):
        written = _factor(factor)
        # Two numbers side by side would read as one; a letter after anything needs only a thin space.
        digits = written.lstrip("{")[:1].isdigit()
        words = _is_word(before) and _is_word(factor)  # two names of several letters side by side
        bracket = written.startswith((r"\left", "(")) or out.endswith(")")
        out += (r" \cdot " if digits or words or isinstance(bare(before), OverLayers) else "" if bracket else r"\,") + written
    return out


def _factor(tree: Expression, *, tight: bool = False) -> str:
    """``tree`` as a factor: in parentheses where it would fall apart. ``tight``: a product needs none here."""
    inner = bare(tree)
    falls_apart = isinstance(inner, Sum | Negative | OverLayers) or (isinstance(inner, Product) and len(inner.factors) > 1 and not tight)
    written = latex(tree)
    modulo = isinstance(inner, Name) and r"\bmod" in written
    return _bracketed(written) if falls_apart or modulo else written


def _addend(tree: Expression) -> str:
    return _bracketed(latex(tree)) if isinstance(bare(tree), Sum) and not isinstance(tree, Labelled) else latex(tree)


def _bracketed(written: str) -> str:
    """In parentheses, which grow only where what they hold is tall."""
    tall = any(command in written for command in (r"\frac", r"\underbrace", r"\sum", r"\left"))
    return rf"\left({written}\right)" if tall else f"({written})"


def _base(tree: Expression) -> str:
    inner = bare(tree)
    written = latex(tree)
    if isinstance(inner, Name) and name_latex(inner.name).isalpha():
        return written
    if isinstance(inner, Name) and (written.startswith(r"\frac") or r"\bmod" in written):
        return _bracketed(written)
    if isinstance(inner, Number | Name) and not (isinstance(inner, Number) and inner.value < 0):
        return f"{{{written}}}"
    return _bracketed(written)


def _is_word(tree: Expression) -> bool:
    inner = bare(tree)
    name = bare(inner.base) if isinstance(inner, Power) else inner
    return isinstance(name, Name) and name_latex(name.name).startswith(r"\mathrm")


def _braced(body: str, label: str) -> str:
    return rf"\underbrace{{{body}}}_{{{text(label)}}}"


def _index(index: str) -> str:
    return _GREEK_INDEX.get(index) or name_latex(index)


def text(words: str) -> str:
    r"""``words`` inside ``\text``: what LaTeX or Markdown would act on is escaped or replaced by a lookalike."""
    shown = _clipped(words)
    return rf"\text{{{''.join(_text_character(c, before) for before, c in zip(' ' + shown, shown, strict=False))}}}"


def _clipped(words: str) -> str:
    """As many whole words as fit; a word that does not fit alone is cut within it."""
    if len(words) <= LABEL_LENGTH:
        return words
    kept = words[: LABEL_LENGTH - 1]
    return f"{kept[: kept.rfind(' ') + 1] or kept}…"


def _text_character(c: str, before: str) -> str:
    if c in "_#$%&{}":
        return f"\\{c}"
    if c in _LOOKALIKES:
        return _LOOKALIKES[c]
    if (c == _HAT and before.isalnum()) or (not hidden(c) and (c.isalnum() or c in _SIGNS)):
        return c
    return " " if c.isspace() else "?"


# Signs that the texts of rules are written with: KaTeX and MathJax set them as they are inside \text, where a command of
# mathematics would be an error.
_SIGNS = " .,:;()+-*/=?!@·×−–…→²³ᵀ⁻√⋆∘±∓≤≥≠≈∞∂⊙⌊⌋⌈⌉"
_HAT = "\u0302"  # behind the letter that wears it
# Inside \text, LaTeX acts on \ ^ ~; a backtick could end a code span around the formula, | a table cell,
# brackets a link; < > could begin HTML.
_LOOKALIKES = {"\\": "∖", "^": "ˆ", "~": "∼", "`": "’", "'": "’", '"': "”", "<": "‹", ">": "›", "|": "∣", "[": "(", "]": ")"}


def name_latex(name: str) -> str:
    r"""A dimension's name, or an atom such as ``floor(T/2)``. One letter is itself, ``d1`` is ``d_{1}``, a word stands upright."""
    if not name.isidentifier():
        return _atom(parse(name))
    match = re.fullmatch(r"([A-Za-z])_?([0-9]+)", name)
    if match:
        return f"{match.group(1)}_{{{match.group(2)}}}"
    letters = "".join(c for c in unicodedata.normalize("NFKC", name) if c.isalnum() or c == "_")
    return letters if len(letters) == 1 else rf"\mathrm{{{letters.replace('_', chr(92) + '_')}}}"


def _atom(node: Expression) -> str:
    """What is no polynomial, and what is inside it."""
    match node:
        case Number(int() as value):
            return number(value)
        case Number(value):
            return repr(value)
        case Name(name):
            return name_latex(name)
        case Negative(body):
            return f"-{_tight(body)}"
        case Sum(terms):
            return "".join(_atom_addend(term, first=i == 0) for i, term in enumerate(terms))
        case Product(factors):
            return _tight(factors[0]) + "".join(_atom_factor(factor) for factor in factors[1:])
        case Quotient(top, bottom):
            return rf"\frac{{{_atom(top)}}}{{{_atom(bottom)}}}"
        case FloorQuotient(top, bottom):
            return rf"\left\lfloor \frac{{{_atom(top)}}}{{{_atom(bottom)}}} \right\rfloor"
        case Remainder(top, bottom):
            return rf"{_tight(top)} \bmod {_tight(bottom)}"
        case Power(base, exponent):
            return f"{{{_tight(base)}}}^{{{_atom(exponent)}}}"
        case Compare(left, relation_, right):
            return f"{_atom(left)} {_COMPARISONS[relation_]} {_atom(right)}"
        case FunctionCall(function, arguments):
            return _function(function, arguments)
    raise NapkinError(f"cannot typeset {as_text(node, spaced=True)!r}")


def _atom_addend(term: Expression, *, first: bool) -> str:
    if first:
        return _atom(term)
    return f" - {_tight(term.body)}" if isinstance(term, Negative) else f" + {_atom(term)}"


def _atom_factor(factor: Expression) -> str:
    return rf" \cdot {_atom(factor)}" if isinstance(factor, Number) else rf"\,{_tight(factor)}"


def _function(name: str, arguments: tuple[Expression, ...]) -> str:
    match name, [_atom(argument) for argument in arguments]:
        case "floor", [x]:
            return rf"\left\lfloor {x} \right\rfloor"
        case "ceiling", [x]:
            return rf"\left\lceil {x} \right\rceil"
        case "log", [x, base]:
            return rf"\log_{base} {x}" if isinstance(arguments[0], Name) else rf"\log_{base}({x})"
        case "Mod", [_, _]:
            return _atom(Remainder(*arguments))
        case ("Max" | "Min"), [_, *_] as items:
            return rf"\{name.lower()}({', '.join(items)})"
        case _, [a, b] if name in _RELATIONS:
            return f"{a} {_RELATIONS[name]} {b}"
        case "And", [_, *_] as conditions:
            return r",\ ".join(conditions)
    raise NapkinError(f"cannot typeset the function {name!r}")


def _tight(node: Expression) -> str:
    return rf"\left({_atom(node)}\right)" if isinstance(node, Sum | Remainder) else _atom(node)


def relation(text_: str) -> str | None:
    """A condition such as ``Eq(Mod(d, h), 0)`` as LaTeX; ``None`` where it is not one that can be typeset."""
    try:
        return _atom(parse(text_))
    except NapkinError:
        return None
