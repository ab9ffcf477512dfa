"""Which part of a decoder an addend of an exact count belongs to, by what it multiplies and where it runs.

Modules are recognized by their sizes and by the order in which they run, never by their names: a matmul with the vocabulary is the head,
one with the feed-forward width the feed-forward, and of the others those before a layer's attention products are its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.derive.result import Derivation
from calc.derive.rules_of_thumb.exact import Addend
from calc.symbolic.parser import free_names

EMBEDDING, QKV, SCORES, MIX, PROJECT, FEED_FORWARD, ROUTER, HEAD, VECTORS, SOFTMAX, PRODUCTS, OTHER = (
    "embedding", "query, key and value", "Q Kᵀ", "P V", "attention output", "feed-forward", "router", "head", "biases and norms",
    "softmax", "both attention products", "other",
)  # fmt: skip
_FORWARD, _ELEMENTWISE = "flops.forward.matmul", "flops.forward.elementwise"
# Sizes that say how often a vector is there, and not how wide it is.
_COUNTS = frozenset({"L", "B", "T", "E", "h", "g"})


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a model. ``modules``: module path → part of its matmul; ``products``: module paths of attention products."""

    modules: Mapping[str, str]
    products: frozenset[str]

    def of(self, addend: Addend) -> str:
        """The part of an addend of a parameter count, or of the forward's FLOPs."""
        if addend.quantity == "parameters":
            return self._of_parameter(addend)
        if addend.module_path in self.products:
            if addend.quantity == _ELEMENTWISE:
                return SOFTMAX if "T**2" in addend.expr else OTHER
            return addend.label if addend.label in (SCORES, MIX) else PRODUCTS
        return self.modules.get(addend.module_path, OTHER) if addend.quantity == _FORWARD else OTHER

    def _of_parameter(self, addend: Addend) -> str:
        widths = [name for name in free_names(addend.expr) if name not in _COUNTS]
        if len(widths) < 2 and "**" not in addend.expr:
            return VECTORS
        part = self.modules.get(addend.module_path.rpartition(".")[0], "")
        return part or (EMBEDDING if {"V", "C"} & set(widths) else OTHER)


def parts_of(derivation: Derivation) -> Parts:
    """The parts of a derived model."""
    owners = {term.module_path.rpartition(".")[0] for term in derivation["parameters"].terms}
    terms = derivation[_FORWARD].terms
    products = [term.module_path for term in terms if term.module_path not in owners and "T**2" in term.expr]
    modules: dict[str, str] = {}
    is_after = False
    for term in terms:
        if term.module_path in products:
            is_after = True
            continue
        modules[term.module_path] = _part(set(free_names(term.expr)), is_after, bool(products))
        is_after = is_after and modules[term.module_path] in (PROJECT, ROUTER)
    return Parts(modules, frozenset(products))


def _part(names: set[str], is_after: bool, attends: bool) -> str:
    if "V" in names:
        return HEAD
    if "f" in names:
        return FEED_FORWARD
    if "E" in names:
        return ROUTER
    return OTHER if not attends else PROJECT if is_after else QKV
