"""Words that every writer of a derivation says alike, whether it has the whole page or only the answers. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from calc.derive.part_names import ATTENTION
from calc.graph.guards import Assumption, TracedDim, divides
from calc.symbolic.expression import Compare, Expression, FunctionCall, Name, Not, Number, Sum
from calc.symbolic.parser import ExpressionError, parse
from calc.symbolic.writer import as_text
from reports.typeset import numbers
from reports.typeset.numbers import NBSP

ANSWERS = (
    ("parameters", "How many parameters?"),
    ("memory.peak", "How much memory at the peak?"),
    ("flops.step.total", "How many FLOPs per step?"),
)

_ORDER = ("parameters", "activations", "gradients", "optimizer_state", "checkpoint", "memory", "flops", "bytes_moved")


def place(name: str) -> int:
    """Where a quantity's chapter stands: what is stored comes first, then what is done."""
    for place, prefix in enumerate(_ORDER):
        if name == prefix or name.startswith(f"{prefix}."):
            return place
    return len(_ORDER)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """``B = 8, T = 1,024`` with breaks between sizes only."""
    return ", ".join(f"{name}{NBSP}={NBSP}{numbers.integer(value)}" for name, value in sizes.items())


def unbroken(equations: str) -> str:
    """``n_layer = L, d_ff = f`` with breaks between the equations only."""
    return equations.replace(" = ", f"{NBSP}={NBSP}")


def model_title(model: str) -> str:
    """The name of a model in a heading: of a Hugging Face config that of its file, or of its folder where the file is ``config.json``."""
    if not model.startswith("hf:"):
        return model
    folder, _, file = model.removeprefix("hf:").rstrip("/").rpartition("/")
    return file.removesuffix(".json") if file != "config.json" else folder.rpartition("/")[2] or file


def searched_sizes(first: int, last: int, step: int = 1) -> str:
    """``24 … 1,048,572, in steps of 12``: the sizes that a search along one dimension covers."""
    span = f"{numbers.integer(first)}{NBSP}…{NBSP}{numbers.integer(last)}"
    return span if step == 1 else f"{span}, in steps of {numbers.integer(step)}"


def several(count: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{numbers.integer(count)} {noun}{'s' if count != 1 else ''}"


def capitalized(text: str) -> str:
    """``text`` with a capital letter where it begins."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """``text`` with a full stop."""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def largest_of(moments: int, at: str) -> str:
    """Which of several moments the peak is."""
    return f"at these sizes the largest of {several(moments, 'peak candidate')}: {at}"


def in_case(equal: Mapping[str, str]) -> str:
    """A case as words: ``B = 1``. Products are left out: sizes of a case move along with them."""
    return " and ".join(f"{name}{NBSP}={NBSP}{to}" for name, to in equal.items() if to.isalnum() or to.isidentifier())


def declared(dims: Iterable[TracedDim], assumptions: Iterable[Assumption]) -> Iterator[Assumption]:
    """Conditions that the model's dimensions declare, unless the record states them too."""
    stated, named = {a.expr for a in assumptions}, [*dims]
    meanings = {dim.name: dim.meaning or dim.name for dim in named}
    for dim in named:
        conditions = []
        if dim.multiple_of not in (None, 1):
            conditions.append((divides(dim.name, dim.multiple_of, dim.plus), _WHY[type(dim.multiple_of)].format(dim.name)))
        if dim.at_most is not None:
            bounded = f"{meanings[dim.name]} cannot exceed {meanings.get(dim.at_most, dim.at_most)}"
            why = "no more can be chosen than there are" if dim.unbacked_at else bounded
            conditions.append((f"{dim.name} <= {dim.at_most}", why))
        for expr, because in conditions:
            if expr not in stated:
                yield Assumption(expr, because)


_WHY = {str: "{} is split into equal parts", int: "the model's spec declares it"}


def undivided(parts: Iterable[str]) -> str:
    """What the row ``attention`` of a table of parts is, as a sentence; empty without one."""
    return _UNDIVIDED if ATTENTION in parts else ""


_UNDIVIDED = "attention: what query keyᵀ, softmax and probs value share, such as the tensors that a fused kernel saves for its backward."


def headline(specialized: Mapping[str, str], sizes: Mapping[str, int]) -> str:
    """What comes before all numbers where closed forms lack dimensions; nothing where they lack none."""
    if not specialized:
        return ""
    at = sizes_text({name: sizes[name] for name in specialized})
    reasons = [*dict.fromkeys(specialized.values())]
    omitted = f", and {several(len(reasons) - 1, 'further reason')} among the assumptions" if len(reasons) > 1 else ""
    return f"Specialized: the closed forms hold for {at} only; there is none in {', '.join(specialized)} ({reasons[0]}{omitted})"


FEW, _EXAMPLES = 10, 3


@dataclass(frozen=True, slots=True)
class Stated:
    """Assumptions that rest on one reason: one by itself, or several as so many with a few examples."""

    assumptions: tuple[Assumption, ...]

    @property
    def because(self) -> str:
        return self.assumptions[0].because

    @property
    def words(self) -> str:
        distinct: dict[Hashable, str] = {}
        for assumption in self.assumptions:
            distinct.setdefault(_meaning(assumption.expr), in_words(assumption.expr))
        shown, omitted = "; ".join([*distinct.values()][:_EXAMPLES]), len(distinct) - _EXAMPLES
        return f"{shown}; and {numbers.integer(omitted)} more" if omitted > 0 else shown


def _meaning(condition: str) -> Hashable:
    """What two writings of a condition have in common: ``not a == b`` is ``a != b``, and neither side of it is the first."""
    match as_condition(condition):
        case Not(Compare(left, "==" | "!=" as relation, right)):
            return _OPPOSITES[relation], frozenset((left, right))
        case Compare(left, "==" | "!=" as relation, right):
            return _RELATIONS[relation], frozenset((left, right))
    return in_words(condition)


def stated(assumptions: Iterable[Assumption]) -> list[Stated]:
    """Assumptions as a reader gets them: more than ten are put together where one line of the model, or of torch, asked for them all."""
    every = [*assumptions]
    groups: dict[str, list[Assumption]] = {}
    for number, assumption in enumerate(every):
        groups.setdefault(assumption.because if len(every) > FEW else str(number), []).append(assumption)
    return [Stated(tuple(group)) for group in groups.values()]


def remark(note: str) -> str:
    """A note as a sentence; one of several lines stays as it is."""
    return note if "\n" in note.strip() else sentence(note.strip())


_RELATIONS = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "=", "!=": "≠"}
_OPPOSITES = {"<": "≥", "<=": ">", ">": "≤", ">=": "<", "==": "≠", "!=": "="}


def as_condition(text: str) -> Expression | None:
    """The formula that an assumption is; None for a sentence."""
    try:
        return parse(text)
    except ExpressionError:
        return None


def in_words(condition: str) -> str:
    """A condition as a reader sees it: ``h divides d``, ``T ≤ C``, and ``T < 4096`` for one that is not to be ``T >= 4096``. One that is
    no formula stays as it is."""
    match as_condition(condition):
        case Not(Compare(left, relation, right)):
            return f"{as_text(left)} {_OPPOSITES[relation]} {as_text(right)}"
        case Compare(left, relation, right):
            return f"{as_text(left)} {_RELATIONS[relation]} {as_text(right)}"
        case FunctionCall("Eq", (FunctionCall("Mod", (Name() | Sum() as dividend, Name() | Number() as part)), Number(0))):
            return f"{as_text(part)} divides {as_text(dividend)}"
        case FunctionCall("Eq", (left, right)):
            return f"{as_text(left)} = {as_text(right)}"
        case Not(FunctionCall("Eq", (left, right))):
            return f"{as_text(left)} ≠ {as_text(right)}"
    return condition
