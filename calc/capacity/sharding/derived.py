"""Reads a model for sharding off its derivation: parameter tensors from the parameter polynomial, saved tensors one by one.

A model is a decoder if a decoder has every monomial of its parameters; the divided side of each matrix is then known. Otherwise only batch
and state are divided, the first other monomial is the reason, and saved tensors count whole. Needs no torch: it reads a finished
derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from calc.capacity.sharding.model import (  # fmt: skip
    DIVIDED,
    EVERY,
    FIRST,
    GATHERED,
    HEADS,
    LAST,
    LAYER,
    REST,
    ROWS,
    SAME,
    STEPS,
    STREAM,
    VOCABULARY,
    WHOLE,
    Item,
    ShardedModel,
    ShardedTensor,
    TransientBytes,
)
from calc.capacity.sharding.peaks import stepped_of, temporaries_of
from calc.derive.names import MODEL_INPUT
from calc.derive.result import SEVERAL, Derivation, SavedTensor
from calc.dimensions import MEANINGS
from calc.symbolic.algebra import Algebra
from calc.symbolic.branches import at_hand
from calc.symbolic.expression import FunctionCall, Number, substitute, walk
from calc.symbolic.parser import free_names, parse
from calc.symbolic.writer import as_text, substituted

_ELEMENT = {"fp32": 4, "bf16": 2, "bf16-master": 2}
_LETTERS = ("L", "d", "h", "g", "k", "f", "V", "C", "E", "e")
_HEADS_AND_WIDTHS = frozenset("hgfV")
_PRODUCTS = ("mm", "addmm", "bmm", "_grouped_mm")
Monomials = dict[str, Fraction]


def model_of(derivation: Derivation, own: Sequence[ShardedTensor] = ()) -> ShardedModel:
    """The model of a derivation. ``own`` are the module's tensors; only they are used if the model is not recognized as a decoder."""
    read, because = _decoder_tensors(derivation)
    items, unkept = _items(derivation) if not because else ((), "")
    because = because or unkept
    tied = sum(t.label in ("embedding", "head") for t in read) == 1
    values = {} if because else {name: size for name, size in derivation.sizes.items() if name in (*_LETTERS, "T")}
    tensors, transients = tuple(own), temporaries_of(derivation, values)
    if not because and not any(candidate.where == LAYER for candidate in transients):
        transients = ()  # with temporaries at the loss only, stages without the loss would seem to have none
    if because:
        read, items, tied = (), (_all_saved(derivation),), False
        own = [_counted_out(tensor, derivation.sizes.get("L", 1)) for tensor in own]
    head = (ShardedTensor("head", "V", "d", LAST, VOCABULARY),) if tied else ()
    return ShardedModel(
        name=derivation.model,
        values=values,
        tensors=(*read, *head),
        items=items,
        source="derived from a trace of its step",
        attention=derivation.options["attention"],
        element=_ELEMENT.get(derivation.options["precision"], 4),
        tied=tied,
        only_data=because,
        own=tuple(own),
        temporaries=_at_one_end(transients) if because else transients,
        stepped=stepped_of(derivation, tensors),
    )


def _at_one_end(transients: Iterable[TransientBytes]) -> tuple[TransientBytes, ...]:
    """Temporaries of a model that is not divided into layers: all except optimizer steps are at one place."""
    return tuple(candidate if candidate.where == STEPS else replace(candidate, where=LAST) for candidate in transients)


def _counted_out(tensor: ShardedTensor, layers: int) -> ShardedTensor:
    """A tensor that every layer has, as ``times`` · layers tensors outside the layers."""
    return replace(tensor, where=FIRST, times=tensor.times * layers) if tensor.where == LAYER else tensor


def _all_saved(derivation: Derivation) -> Item:
    """Bytes saved for backward, in B alone: other variables of any model may clash with those of a layout."""
    sizes = {name: Number(size) for name, size in derivation.sizes.items() if name != "B"}
    text = at_hand(derivation["activations.bytes"].text or "0", derivation.sizes)
    numbers = as_text(substitute(parse(text), sizes))
    return Item("all saved tensors", numbers, SAME, "derived; its batch is that of a rank", EVERY)


# -- parameters -------------------------------------------------------------------------------------------------------------


def _monomials(text: str) -> Monomials:
    """``2*d*f*L + d`` as ``{"L*d*f": 2, "d": 1}``: variables in order, powers as factors. A vector in every second layer has coefficient ½.
    """
    algebra = Algebra(sorted(free_names(text)), [text])
    coefficients: Monomials = {}
    for coefficient, powers in algebra.terms(algebra.parse(text)):
        coefficients["*".join(sorted(name for name, power in powers.items() for _ in range(power)))] = coefficient
    return coefficients


def _decoder_tensors(derivation: Derivation) -> tuple[tuple[ShardedTensor, ...], str]:
    """The tensors, and why there are none (empty if there are)."""
    missing = [name for name in ("L", "d", "h", "k", "f", "V", "T", "B") if name not in derivation.sizes]
    if missing:
        return (), f"it has no dimension {missing[0]} ({MEANINGS[missing[0]]})"
    text = at_hand(derivation["parameters"].text or "0", derivation.sizes)
    monomials = _monomials(text)
    parts = next((f"{count}*{name}" for name, count in monomials.items() if count.denominator != 1 or count < 0), "")
    if parts:
        return (), f"its parameters have {parts}: not every layer has the same tensors, as a decoder's have"
    unmatched = dict(monomials)
    all_tensors: list[ShardedTensor] = []
    experts = "E" in derivation.sizes
    for tensors in (_of_heads(unmatched, derivation), _of_feed_forward(unmatched, experts), _of_ends(unmatched), _of_vectors(unmatched)):
        if isinstance(tensors, str):
            return (), tensors
        all_tensors += tensors
    if unmatched:
        return (), f"its parameters have {next(iter(unmatched.values()))}*{next(iter(unmatched))}, which no decoder has"
    if not _is_whole(all_tensors, text, derivation):
        return (), "the tensors that a decoder has are not all of its parameters"
    return tuple(all_tensors), ""


def _is_whole(tensors: Iterable[ShardedTensor], text: str, derivation: Derivation) -> bool:
    """Whether the recognized tensors add up to the derived parameters: none is missing or counted twice."""
    products = [f"{t.times}*{t.rows}*{t.row_length}{'*E' if t.experts else ''}{'*L' if t.where == LAYER else ''}" for t in tensors]
    difference = f"{' + '.join(products)} - ({text})"
    if any(dim.name == "k" and dim.tied for dim in derivation.dims):  # heads make up the width
        difference = substituted(difference, {"d": "h*k"})
    return not _monomials(difference)


def _of_heads(unmatched: Monomials, derivation: Derivation) -> list[ShardedTensor] | str:
    """Queries, keys, values and output projection, with their biases. ``L*d*d`` counts all four if d = h·k."""
    keys = "g*k" if "g" in derivation.sizes and "L*d*g*k" in unmatched else "h*k"
    if unmatched.pop("L*d*d", 0) == 4:
        biases = _biases_of_heads(unmatched, derivation)
    else:
        shared = unmatched.pop("L*d*g*k", 0)
        own = unmatched.pop("L*d*h*k", 0)
        if (own, shared) not in ((2, 2), (4, 0)):
            return "its attention does not consist of queries, keys, values and one projection"
        biases = 3 if unmatched.pop("L*h*k", 0) + unmatched.pop("L*g*k", 0) == 3 else 0
    tensors = [
        ShardedTensor("queries", "h*k", "d", divided=ROWS),
        ShardedTensor("keys and values", keys, "d", divided=HEADS, times=2),
        ShardedTensor("attention output", "d", "h*k", divided=REST),
    ]
    if biases:
        tensors.append(ShardedTensor("bias of queries", "h*k", "1", divided=ROWS, per_token=False))
        tensors.append(ShardedTensor("bias of keys and values", keys, "1", divided=HEADS, times=2, per_token=False))
    return tensors


def _biases_of_heads(unmatched: Monomials, derivation: Derivation) -> int:
    """For d = h·k: how many biases of width d the attention matrices have per layer. Three of four are divided like the heads."""
    terms = [(term.module_path.rpartition(".")[0], _monomials(term.expr)) for term in derivation["parameters"].terms]
    modules = {module for module, monomials in terms if "L*d*d" in monomials}
    beside = sum(monomials.get("L*d", Fraction(0)) for module, monomials in terms if module in modules)
    if beside < 3 or unmatched.get("L*d", 0) < beside:
        return 0
    unmatched["L*d"] -= 3
    return 3


def _of_feed_forward(unmatched: Monomials, experts: bool) -> list[ShardedTensor] | str:
    matrices = unmatched.pop("E*L*d*f" if experts else "L*d*f", 0)
    if matrices not in (2, 3):
        return f"its feed-forward has {matrices} matrices where decoders have 2 or 3"
    tensors = [ShardedTensor("gate and up" if matrices == 3 else "up", "f", "d", divided=ROWS, times=int(matrices) - 1, experts=experts)]
    tensors.append(ShardedTensor("down", "d", "f", divided=REST, experts=experts))
    routers = unmatched.pop("E*L*d", Fraction(0))
    if routers not in (0, 1):
        return f"it has {routers} matrices or vectors of E*d in a layer, where a decoder has one router"
    if routers:
        tensors.append(ShardedTensor("router", "E", "d"))
    biases = unmatched.pop("L*f", Fraction(0))
    if biases:
        tensors.append(ShardedTensor("bias of up", "f", "1", divided=ROWS, times=int(biases), per_token=False))
    return tensors


def _of_ends(unmatched: Monomials) -> list[ShardedTensor] | str:
    tables = unmatched.pop("V*d", 0)
    if tables not in (1, 2):
        return f"it has {tables} tables of the vocabulary where decoders have 1 or 2"
    tensors = [ShardedTensor("embedding", "V", "d", FIRST, VOCABULARY, per_token=False)]
    if tables == 2:
        tensors.append(ShardedTensor("head", "V", "d", LAST, VOCABULARY))
    positions = unmatched.pop("C*d", Fraction(0))
    if positions:
        tensors.append(ShardedTensor("positions", "C", "d", FIRST, times=int(positions), per_token=False))
    return tensors


def _of_vectors(unmatched: Monomials) -> list[ShardedTensor]:
    """Norms, and biases of matmuls whose result is whole on each rank."""
    tensors = []
    for name, rows, where in (("L*d", "d", LAYER), ("L*k", "k", LAYER), ("d", "d", LAST)):
        times = unmatched.pop(name, 0)
        if times:
            label = "last norm" if where is LAST else "norms and biases"
            tensors.append(ShardedTensor(label, rows, "1", where, WHOLE, int(times), per_token=False))
    return tensors


# -- saved for backward --------------------------------------------------------------------------------------------------------


def _items(derivation: Derivation) -> tuple[tuple[Item, ...], str]:
    """Every saved tensor once, in a layer or at an end, and an empty text; or the reason why they do not add up to the derived activations.
    """
    if derivation.options["precision"] not in _ELEMENT:
        return (), f"precision {derivation.options['precision']} saves casts of weights among its activations: use bf16 or fp32"
    if derivation.options.get("checkpointing", "none") != "none":
        return (), "the layout chooses activation checkpointing: derive the model without it"
    counted = [tensor for tensor in derivation.saved if not tensor.same_as]
    first_layer = next((i for i, tensor in enumerate(counted) if "*" in tensor.module_path), len(counted))
    layers = {t.module_path for t in counted if t.times == "L - 1"}
    items = []
    for number, tensor in enumerate(counted):
        if tensor.times == "1" and tensor.module_path in layers:
            continue  # the first layer's own tensor: another one, with factor L - 1, counts for every layer
        items.append(_item(tensor, _where(tensor, number < first_layer, derivation), derivation))
    if not all(_is_of_decoder(item.expr) for item in items) or not _adds_up(items, derivation):
        return (), "its saved tensors are not a sum over layers"
    return tuple(items), ""


def _is_of_decoder(expr: str) -> bool:
    """Whether an expression is in a decoder's dimensions alone, without functions such as roundings."""
    return not any(isinstance(node, FunctionCall) for node in walk(parse(expr))) and free_names(expr) <= {*_LETTERS, "B", "T"}


def _where(tensor: SavedTensor, before: bool, derivation: Derivation) -> str:
    if tensor.times in ("L", "L - 1"):
        return LAYER
    if _is_table(tensor, derivation):
        return EVERY
    return FIRST if before else LAST


def _item(tensor: SavedTensor, where: str, derivation: Derivation) -> Item:
    algebra = Algebra(sorted(free_names(tensor.expr) | free_names(tensor.times)), [tensor.expr, tensor.times])
    per_layer = algebra.text(algebra.parse(tensor.expr).exquo(algebra.parse(tensor.times))) if where is LAYER else tensor.expr
    scores = sum(side == "T" for side in tensor.shape) > 1
    return Item(f"{tensor.tensor}, for {tensor.module_path}", per_layer, _under(tensor, derivation), tensor.because, where, scores)


def _is_table(tensor: SavedTensor, derivation: Derivation) -> bool:
    """Whether a tensor has positions but no sequences, like rotary angles shared by all layers. If B = 1, only a head width tells them
    apart."""
    dims = _dims(tensor)
    return dims <= {"T", "k"} and ("B" not in derivation.specialized or dims != {"T"})


def _dims(tensor: SavedTensor) -> set[str]:
    return {name for side in tensor.shape if side != SEVERAL for name in free_names(side)}


def _under(tensor: SavedTensor, derivation: Derivation) -> str:
    """How a saved tensor is divided, by the variables of its shape."""
    dims = _dims(tensor)
    if dims & _HEADS_AND_WIDTHS:
        return DIVIDED
    if "B" not in dims and (_is_table(tensor, derivation) or "T" not in dims):
        return SAME
    if tensor.tensor.owner == MODEL_INPUT or ("e" not in dims and tensor.dtype.startswith("int")):
        return SAME
    if "e" in dims or "E" in dims:
        return GATHERED
    if "d" in dims and any(f".{name}." in tensor.operator for name in _PRODUCTS):
        made_at = tensor.tensor.module_path
        # Merged heads, the input of the output projection: made by the module that contains the projection.
        merged = any(d.name == "k" and d.tied for d in derivation.dims) and tensor.module_path.rpartition(".")[0] == made_at
        return DIVIDED if merged and made_at else GATHERED
    return STREAM


def _adds_up(items: Iterable[Item], derivation: Derivation) -> bool:
    texts = [f"L*({item.expr})" if item.where is LAYER else item.expr for item in items]
    saved = at_hand(derivation["activations.bytes"].text or "0", derivation.sizes)
    algebra = Algebra(tuple(derivation.sizes), [*texts, saved])
    return bool(sum((algebra.parse(text) for text in texts), start=algebra.constant(0)) == algebra.parse(saved))
