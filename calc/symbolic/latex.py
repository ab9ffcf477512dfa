"""Expression trees as rows of marks, in LaTeX with few commands, all of which GitHub's Markdown and MathML converters know.

A formula is a tuple of pieces, one for each top-level term with its operator in front: pages break lines between
pieces, never inside one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from calc.errors import NapkinError
from calc.symbolic import marks
from calc.symbolic.characters import hidden
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
from calc.symbolic.marks import CLOSE, COMMA, DOT, DOTS, MAX, MINUS, OPEN, PLUS, SPACE, THIN, Mark, MarkKind, Marks
from calc.symbolic.parser import parse
from calc.symbolic.readable import rounded_up
from calc.symbolic.tree import numbered
from calc.symbolic.writer import as_text

LABEL_LENGTH = 110  # the longest label of our own, query, key and value saved for a fused attention, is not cut
WIDE = 26  # characters of one piece beyond which it does not fit a phone's screen
BRACED_TERMS, BRACED_LABEL = 3, 14  # what braces with labels under them can carry

_RELATIONS = {"Eq": "=", "Ne": r"\ne", "Le": r"\le", "Ge": r"\ge", "Lt": r"\lt", "Gt": r"\gt"}
_COMPARISONS = {"==": "=", "!=": r"\ne", "<=": r"\le", ">=": r"\ge", "<": r"\lt", ">": r"\gt"}
LAYER = Mark(r"\ell", "ℓ")


def pieces(tree: Expression) -> tuple[Marks, ...]:
    """The formula in pieces, in order; joined by spaces they are the whole."""
    match tree:
        case Sum(terms) if terms:
            return tuple(p for i, t in enumerate(terms) for p in _split(t, first=i == 0))
        case FunctionCall("Max", items) if items:
            return tuple(_maximum(items))
        case _:
            return tuple(_split(tree, first=True))


def _split(term: Expression, *, first: bool) -> list[Marks]:
    """A term with its sign; a wide one that ends in a bracketed sum is split inside the bracket, which then does not stretch."""
    unbroken = _leading(term, first=first)
    if marks.width(unbroken) <= WIDE or isinstance(term, Labelled):
        return [unbroken]
    match term:
        case OverLayers(_, _, Sum() as inner):
            head: Marks = (_over(term),)
        case Product((*factors, Sum() as inner)) if factors:
            head = _product(tuple(factors))
        case Sum() as inner:
            head = ()
        case _:
            return [unbroken]
    opening, *further = pieces(inner)
    opened = [(*(() if first else (PLUS,)), *head, OPEN, *opening), *further]
    opened[-1] = (*opened[-1], CLOSE)
    return opened


Row = tuple[tuple[Marks, ...], str]


def labelled_rows(tree: Expression, *, braces: bool = True) -> tuple[Row, ...]:
    """The terms of a sum in pieces, each with its label apart, where braces under them would not be readable or are not wanted; else
    none."""
    terms = tree.terms if isinstance(tree, Sum) else (tree,)
    labels = [t.text if isinstance(t, Labelled) else "" for t in terms]
    if not any(labels) or (braces and 1 < len(terms) <= BRACED_TERMS and max(map(len, labels)) <= BRACED_LABEL and not _wide(terms)):
        return ()
    if len(terms) == 1:
        return ((pieces(_unlabelled(terms[0])), labels[0]),)  # nothing is added to it: no brackets
    return tuple((tuple(_split(_unlabelled(t), first=i == 0)), label) for i, (t, label) in enumerate(zip(terms, labels, strict=True)))


def _wide(terms: tuple[Expression, ...]) -> bool:
    return any(isinstance(t, Labelled) and marks.width(marked(t.body)) > WIDE for t in terms)


def _unlabelled(tree: Expression) -> Expression:
    return tree.body if isinstance(tree, Labelled) else tree


def _leading(term: Expression, *, first: bool) -> Marks:
    if isinstance(term, Negative):
        return (MINUS, *_factor(term.body, tight=True))
    if isinstance(term, Labelled) and isinstance(term.body, Negative) and not first:
        return (MINUS, _braced(_factor(term.body.body, tight=True), term.text))
    addend = _addend(term)
    return addend if first else (PLUS, *addend)


def _maximum(items: tuple[Expression, ...]) -> Iterator[Marks]:
    """``max(a + b, c)`` in pieces. The parentheses are not stretchy: they stand in different pieces. Many names in a row are numbered, and
    those between the second and the last go without saying."""
    if numbered(items):
        first, second, *_, last = (marked(item) for item in items)
        yield from ((MAX, OPEN, *first, COMMA), (*second, COMMA), (DOTS, COMMA), (*last, CLOSE))
        return
    for i, item in enumerate(items):
        inner = list(pieces(item))
        inner[0] = (MAX, OPEN, *inner[0]) if i == 0 else inner[0]
        inner[-1] = (*inner[-1], CLOSE if i == len(items) - 1 else COMMA)
        yield from inner


def latex(tree: Expression) -> str:
    """The whole tree as one LaTeX formula."""
    return marks.as_latex(marked(tree))


def marked(tree: Expression) -> Marks:
    """The whole tree as one row."""
    match tree:
        case Sum((_, *_)) | FunctionCall("Max", _):
            return marks.joined(pieces(tree), SPACE)
        case Sum():
            return marks.number(0)
        case Product(factors):
            return _product(factors)
        case Power(base, Number(exponent)):
            return (*_base(base), marks.raised(marks.exponent(exponent)))
        case Quotient(Product((Number() as number, *factors)), Number() as bottom) if factors:
            return _product((Quotient(number, bottom), *factors))
        case Quotient(top, bottom):
            return (marks.fraction(marked(top), marked(bottom)),)
        case Negative(body):
            return (MINUS, *_factor(body, tight=True))
        case OverLayers(_, _, body):
            return (_over(tree), marks.GAP, *_factor(body, tight=True))
        case Labelled(body):
            return (_braced(marked(body), tree.text),)
    return _atom(tree)


def _over(tree: OverLayers) -> Mark:
    return marks.over(LAYER if tree.index == "l" else marks.word(tree.index), marked(tree.upper))


def _product(factors: tuple[Expression, ...]) -> Marks:
    if not factors:
        return marks.number(1)
    out = list(marked(factors[0]) if isinstance(factors[0], Quotient) else _factor(factors[0]))
    for before, factor in itertools.pairwise(factors):
        new = _factor(factor)
        # Two numbers side by side would read as one, a number and a fraction as a mixed number; a letter needs only a thin space.
        digits = next(mark.kind for mark in new if mark.kind is not MarkKind.GROUP) is MarkKind.DIGITS
        digits = digits or (isinstance(bare(before), Number) and isinstance(bare(factor), Quotient))
        words = _is_word(before) and _is_word(factor)  # two names of several letters side by side
        bracket = new[0].kind is MarkKind.OPEN or out[-1].kind is MarkKind.CLOSE
        if digits or words or isinstance(bare(before), OverLayers):
            out.append(DOT)
        elif not bracket:
            out.append(THIN)
        out += new
    return tuple(out)


def _factor(tree: Expression, *, tight: bool = False) -> Marks:
    """``tree`` as a factor: in parentheses where it would fall apart. ``tight``: a product needs none here."""
    inner = bare(tree)
    falls_apart = isinstance(inner, Sum | Negative | OverLayers) or (isinstance(inner, Product) and len(inner.factors) > 1 and not tight)
    modulo = isinstance(inner, Name) and _is_remainder(inner.name)
    return marks.bracketed(marked(tree)) if falls_apart or modulo else marked(tree)


def _is_remainder(name: str) -> bool:
    match parse(name):
        case Remainder() | FunctionCall("Mod", _):
            return True
    return False


def _addend(tree: Expression) -> Marks:
    return marks.bracketed(marked(tree)) if isinstance(bare(tree), Sum) and not isinstance(tree, Labelled) else marked(tree)


def _base(tree: Expression) -> Marks:
    inner, base = bare(tree), marked(tree)
    match inner:
        case Name(name) if [mark.kind for mark in name_marks(name)] == [MarkKind.LETTER]:
            return base
        case Name(name) if isinstance(parse(name), Quotient) or _is_remainder(name):
            return marks.bracketed(base)
        case Name():
            return marks.grouped(base)
        case Number(value) if value >= 0:
            return marks.grouped(base)
    return marks.bracketed(base)


def _is_word(tree: Expression) -> bool:
    inner = bare(tree)
    name = bare(inner.base) if isinstance(inner, Power) else inner
    return isinstance(name, Name) and name_marks(name.name)[0].kind is MarkKind.WORD


def _braced(body: Marks, label: str) -> Mark:
    under = sum(3 if c in "+-" else c != " " for c in _clipped(label))
    latex, apart = (rf"\underbrace{{{marks.as_latex(body, apart=a)}}}_{{{text(label, apart=a)}}}" for a in (False, True))
    return Mark(latex, None, marks.width(body) + under, tall=True, apart=apart)


def text(plain: str, *, apart: bool = False) -> str:
    r"""``plain`` inside ``\text``: what LaTeX or Markdown would act on is escaped or replaced by a lookalike. ``apart`` writes signs such
    as ``\_`` outside of it: inside, MathJax prints the backslash too."""
    shown = _clipped(plain)
    characters = ((apart and c in "_#%&", _text_character(c, before)) for before, c in zip(" " + shown, shown, strict=False))
    runs = ((outside, "".join(c for _, c in run)) for outside, run in itertools.groupby(characters, key=lambda each: each[0]))
    return "".join(run if outside else rf"\text{{{run}}}" for outside, run in runs)


def _clipped(plain: str) -> str:
    """As many whole words as fit; a word that does not fit alone is cut within it."""
    if len(plain) <= LABEL_LENGTH:
        return plain
    shortened = plain[: LABEL_LENGTH - 1]
    return f"{shortened[: shortened.rfind(' ') + 1] or shortened}…"


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
_SIGNS = " .,:;()+-*/=?!@·×−–…→²³ᵀ⁻√⋆∘±∓≤≥≠≈∞∂ℒ⊙⌊⌋⌈⌉"
_HAT = "\u0302"  # behind the letter that wears it
# Inside \text, LaTeX acts on \ ^ ~; a backtick could end a code span around the formula, | a table cell,
# brackets a link; < > could begin HTML.
_LOOKALIKES = {"\\": "∖", "^": "ˆ", "~": "∼", "`": "’", "'": "’", '"': "”", "<": "‹", ">": "›", "|": "∣", "[": "(", "]": ")"}


def name_marks(name: str) -> Marks:
    r"""A dimension's name, or an atom such as ``floor(T/2)``. One letter is itself, ``d1`` is ``d_{1}``, a word stands upright."""
    if not name.isidentifier():
        return _atom(rounded_up(parse(name)))
    match = re.fullmatch(r"([A-Za-z])_?([0-9]+)", name)
    return (marks.letter(match[1]), marks.lowered(match[2])) if match else (marks.word(name),)


_FLOOR = Mark(r"\left\lfloor ", None, 7, MarkKind.OPEN, True), Mark(r" \right\rfloor", None, 7, tall=True)
_CEILING = Mark(r"\left\lceil ", None, 6, MarkKind.OPEN, True), Mark(r" \right\rceil", None, 6, tall=True)


def _within(ends: tuple[Mark, Mark], inside: Marks) -> Marks:
    return (ends[0], *inside, ends[1])


def _atom(node: Expression) -> Marks:
    """What is no polynomial, and what is inside it."""
    match node:
        case Number(int() as value):
            return marks.number(value)
        case Number(value):
            return (marks.command(repr(value)),)
        case Name(name):
            return name_marks(name)
        case Negative(body):
            return (MINUS, *_tight(body))
        case Sum(terms):
            return tuple(mark for i, term in enumerate(terms) for mark in _atom_addend(term, first=i == 0))
        case Product(factors):
            return (*_tight(factors[0]), *(mark for factor in factors[1:] for mark in _atom_factor(factor)))
        case Quotient(top, bottom):
            return (marks.fraction(_atom(top), _atom(bottom)),)
        case FloorQuotient(top, bottom):
            return _within(_FLOOR, (marks.fraction(_atom(top), _atom(bottom)),))
        case Remainder(top, bottom):
            return _related(_tight(top), r"\bmod", _tight(bottom))
        case Power(base, exponent):
            return (*marks.grouped(_tight(base)), marks.raised(_atom(exponent)))
        case Compare(left, relation_, right):
            return _related(_atom(left), _COMPARISONS[relation_], _atom(right))
        case FunctionCall(function, arguments):
            return _function(function, arguments)
    raise NapkinError(f"cannot typeset {as_text(node, spaced=True)!r}")


def _related(left: Marks, sign: str, right: Marks) -> Marks:
    return (*left, marks.command(f" {sign} "), *right)


def _atom_addend(term: Expression, *, first: bool) -> Marks:
    if first:
        return _atom(term)
    sign, factors = (MINUS, _tight(term.body)) if isinstance(term, Negative) else (PLUS, _atom(term))
    return (SPACE, sign, SPACE, *factors)


def _atom_factor(factor: Expression) -> Marks:
    return (DOT, *_atom(factor)) if isinstance(factor, Number) else (THIN, *_tight(factor))


def _function(name: str, arguments: tuple[Expression, ...]) -> Marks:
    match name, [_atom(argument) for argument in arguments]:
        case "floor", [x]:
            return _within(_FLOOR, x)
        case "ceiling", [x]:
            return _within(_CEILING, x)
        case "log", [x, base]:
            log = marks.command(rf"\log_{marks.as_latex(base)}")
            return (log, SPACE, *x) if isinstance(arguments[0], Name) else (log, OPEN, *x, CLOSE)
        case "Mod", [_, _]:
            return _atom(Remainder(*arguments))
        case (("Max" | "Min"), [_, *_] as items):
            return (MAX if name == "Max" else marks.command(r"\min"), OPEN, *marks.joined(items, Mark(", ", ",", 1)), CLOSE)
        case _, [a, b] if name in _RELATIONS:
            return _related(a, _RELATIONS[name], b)
        case "And", [_, *_] as conditions:
            return marks.joined(conditions, marks.command(r",\ "))
    raise NapkinError(f"cannot typeset the function {name!r}")


def _tight(node: Expression) -> Marks:
    return _within(marks.GROWING, _atom(node)) if isinstance(node, Sum | Remainder) else _atom(node)


def relation(condition: Expression) -> Marks | None:
    """A condition such as ``Eq(Mod(d, h), 0)``; ``None`` where it is not one that can be typeset."""
    try:
        return _atom(condition)
    except NapkinError:
        return None
