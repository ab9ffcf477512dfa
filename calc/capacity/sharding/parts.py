"""Expressions for the part of a model on one device of a layout: its tensors, its shards of them, the layers of its stage.

Variables: n data, t tensor, p pipeline, c context, x expert ranks; v chunks per stage, m micro-batches of b sequences, B sequences per
step. A single layout omits kinds with 1 rank, which keeps expressions short; a search keeps the variables that it varies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from calc.capacity.sharding.layout import OFF, REGATHERED
from calc.capacity.sharding.model import (
    DIVIDED,
    EVERY,
    FIRST,
    GATHERED,
    HEADS,
    LAST,
    LAYER,
    REST,
    ROWS,
    STREAM,
    VOCABULARY,
    Item,
    ShardedModel,
    ShardedTensor,
)
from calc.symbolic.expression import Expression, FunctionCall, Name, Product, Quotient, Sum, names, substitute
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text

# Distinct stages of a pipeline: the first, an inner one (the second), the last; or the only one.
INNER, ONLY = "inner", "only"


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """The choices that select the expressions: everything that is not a number. ``axes`` are the variables of kinds with more than one
    rank."""

    axes: frozenset[str]
    zero: int
    sequence: str
    checkpointing: str
    exchange: str
    interleaved: bool
    uneven: bool
    stages: tuple[str, ...]
    ranked: bool = False

    @property
    def only_data(self) -> bool:
        """Whether every rank has whole tensors, or rows of whole tensors."""
        return not self.axes & {"t", "p", "x"}

    def has(self, axis: str) -> bool:
        return axis in self.axes

    def over(self, *axes: str) -> str:
        """``/(n*c)`` for those variables that are axes; empty if none is."""
        dividing = [axis for axis in axes if axis in self.axes]
        return "" if not dividing else f"/{dividing[0]}" if len(dividing) == 1 else f"/({'*'.join(dividing)})"

    def ranks(self, *axes: str) -> str:
        """``n*c`` for those variables that are axes; ``1`` if none is."""
        return "*".join(axis for axis in axes if axis in self.axes) or "1"


def stages_of(pipeline: int) -> tuple[str, ...]:
    """The kinds of stages of a pipeline."""
    return (ONLY,) if pipeline == 1 else (FIRST, LAST) if pipeline == 2 else (FIRST, INNER, LAST)


def total(parts: Iterable[str]) -> str:
    """The text of a sum; 0 if empty."""
    return " + ".join(parts) or "0"


@lru_cache(maxsize=65536)  # a search repeats the same few thousand products
def product(*factors: str) -> str:
    """The text of a product without factors of 1; sums get brackets."""
    return "*".join(f"({f})" if " " in f and isinstance(parse(f), Sum) else f for f in factors if f != "1") or "1"


# -- parameters -------------------------------------------------------------------------------------------------------------


def local(tensor: ShardedTensor, choice: LayoutChoice) -> tuple[str, str]:
    """Rows and rest of a tensor on the first tensor rank, which has the most if the vocabulary does not divide evenly."""
    rows, row_length = tensor.rows, tensor.row_length
    if not choice.has("t"):
        return rows, row_length
    match tensor.divided:
        case _ if tensor.divided == ROWS:
            return f"{rows}/t", row_length
        case _ if tensor.divided == REST:
            return rows, f"{row_length}/t"
        case _ if tensor.divided == HEADS:
            return f"{rows}/{'t' if 'g' not in rows else 'Min(t, g)'}", row_length
        case _ if tensor.divided == VOCABULARY:
            return f"ceiling({rows}/t)", row_length
    return rows, row_length


def sharers(tensor: ShardedTensor, choice: LayoutChoice) -> str:
    """The number of ranks that share a tensor, among which ZeRO divides it."""
    return choice.ranks("n", "c") if tensor.experts else choice.ranks("n", "c", "x")


def times(tensor: ShardedTensor, choice: LayoutChoice) -> str:
    """Number of copies of a tensor on a rank, per layer or once."""
    return product(str(tensor.times), f"E{choice.over('x')}" if tensor.experts else "1")


WHOLE_RANK, FILLED, EXACT = "whole", "filled", "exact"


def elements(tensors: Iterable[ShardedTensor], choice: LayoutChoice, how: str = WHOLE_RANK) -> str:
    """Elements on a rank, or in a ZeRO shard, for which each tensor's rows are cut into equal shards: ``FILLED`` with the padding that
    every rank allocates, ``EXACT`` without padding, on rank r of those that share."""
    return total(_elements(tensor, choice, how) for tensor in tensors)


def _elements(tensor: ShardedTensor, choice: LayoutChoice, how: str) -> str:
    rows, row_length = local(tensor, choice)
    among = sharers(tensor, choice)
    if how != WHOLE_RANK and among != "1":
        piece = f"ceiling({rows}/{f'({among})' if '*' in among else among})"
        rank = "floor(r/x)" if tensor.experts and choice.has("x") else "r"
        rows = piece if how == FILLED else f"Min({rows}, ({rank} + 1)*{piece}) - Min({rows}, {rank}*{piece})"
    return product(times(tensor, choice), rows, row_length)


def parameters(model: ShardedModel, choice: LayoutChoice) -> tuple[ShardedTensor, ...]:
    """The tensors that are counted: the module's own if no rank splits them, else a decoder's matrices, each separately."""
    return model.own if model.own and choice.only_data else model.tensors


def in_layers(tensors: Iterable[ShardedTensor], experts: bool) -> list[ShardedTensor]:
    """The tensors of a layer: those of its experts, or the others."""
    return [t for t in tensors if t.where == LAYER and t.experts == experts]


def outside(tensors: Iterable[ShardedTensor], stage: str, tied: bool) -> list[ShardedTensor]:
    """Tensors of a stage outside the layers. A tied table counts once if both ends are on one stage."""
    at = {FIRST: (FIRST,), LAST: (LAST,), ONLY: (FIRST, LAST)}.get(stage, ())
    return [t for t in tensors if t.where in at and not (tied and stage == ONLY and t.label == "head")]


# -- layers of a stage ------------------------------------------------------------------------------------------------------


def slots(choice: LayoutChoice) -> str:
    """Layers of an inner stage."""
    return "(L + 2*Min(1, Mod(L, p*v)))/p" if choice.uneven else "L/p"


def fewer(choice: LayoutChoice) -> str:
    """How many layers fewer the first and the last stage have."""
    return "Min(1, Mod(L, p*v))" if choice.uneven else "0"


def layers(choice: LayoutChoice, stage: str) -> str:
    """Layers of a stage. If L is not divisible, L + 2 is: the ends then count as layers, and the first and last stage have one fewer."""
    if stage == ONLY:
        return "L"
    return slots(choice) if stage == INNER or not choice.uneven else f"{slots(choice)} - {fewer(choice)}"


def micro_batches_in_flight(choice: LayoutChoice, stage: str) -> str:
    """Micro-batches whose activations a stage holds at once, per model chunk (1F1B).

    Stage i of p holds p - i of the m. Interleaved, it holds 2(p - i - 1) + (v - 1)p + 1 of its v m chunks.
    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2; Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.3.
    """
    if stage == ONLY:
        return "1"
    if choice.interleaved:
        return {FIRST: "Min(m*v, (v + 1)*p - 1)", INNER: "Min(m*v, (v + 1)*p - 3)", LAST: "(v - 1)*p + 1"}[stage]
    return {FIRST: "Min(m, p)", INNER: "Min(m, p - 1)", LAST: "1"}[stage]


def at_the_end(choice: LayoutChoice, stage: str) -> tuple[str, ...]:
    """Micro-batches in the chunk with the embedding (first stage) or the head (last stage) at the stage's peak.

    Interleaved stages have two such peak candidates, one micro-batch apart. Which is larger depends on whether that chunk is shorter.
    """
    if stage == FIRST and choice.interleaved:
        return ("Min(m, 2*p - 1)", "Min(m, 2*p)") if choice.uneven else ("Min(m, 2*p)",)
    if stage == LAST and choice.interleaved and choice.uneven:
        return ("1 - Min(1, m - p)", "1")
    return ("Min(m, p)",) if stage == FIRST else ("1",)


def layers_in_flight(choice: LayoutChoice, stage: str) -> str:
    """Layers whose activations a stage holds at once, each for one micro-batch; the fewer layers of an end chunk are not subtracted yet."""
    if stage == ONLY:
        return "L"
    return product(micro_batches_in_flight(choice, stage), f"{slots(choice)}/v" if choice.interleaved else slots(choice))


# -- activations ------------------------------------------------------------------------------------------------------------


def on_rank(item: Item, choice: LayoutChoice) -> str:
    """Bytes of an item of one micro-batch on a rank."""
    return of_rank(item.expr, item.under, choice)


@lru_cache(maxsize=65536)  # likewise
def of_rank(expr: str, under: str, choice: LayoutChoice) -> str:
    """Bytes of one micro-batch on a rank. ``expr`` is the undivided number of bytes, ``under`` says how they are divided."""
    tree = substitute(parse(expr), {"B": Name("b"), **({"T": Quotient(Name("T"), Name("c"))} if choice.has("c") else {})})
    return as_text(_on_tensor_rank(tree, under) if choice.has("t") and _is_divided(under, choice) else tree)


def _on_tensor_rank(tree: Expression, under: str) -> Expression:
    """The largest share of a tensor rank: of the vocabulary rounded up, and with more ranks than key heads, one head."""
    if under == DIVIDED and isinstance(tree, Product) and tree.factors[-1] == Name("V"):
        return Product((*tree.factors[:-1], FunctionCall("ceiling", (Quotient(Name("V"), Name("t")),))))
    by_heads = under == DIVIDED and "g" in names(tree)
    return Quotient(tree, FunctionCall("Min", (Name("t"), Name("g"))) if by_heads else Name("t"))


def _is_divided(under: str, choice: LayoutChoice) -> bool:
    return under == DIVIDED or (under == STREAM and choice.sequence != OFF) or (under == GATHERED and choice.sequence == REGATHERED)


def saved_items(model: ShardedModel, choice: LayoutChoice) -> list[Item]:
    """Items of a layer that stay allocated from the forward to the backward."""
    return [item for item in model.items if item.where == LAYER and not (choice.checkpointing == "attention" and item.scores)]


def beside_layers(model: ShardedModel, stage: str) -> list[Item]:
    """Items of a stage outside the layers."""
    at = {FIRST: (FIRST,), LAST: (LAST,), ONLY: (FIRST, LAST)}.get(stage, ())
    return [item for item in model.items if item.where in (*at, EVERY)]


def passed(model: ShardedModel, choice: LayoutChoice) -> str:
    """Bytes of the activations passed between two layers, for one micro-batch, whole on each tensor rank."""
    return f"{model.element}*b*{'(T/c)' if choice.has('c') else 'T'}*d"
