"""Why an amount that a step shows is what it is: the reasons of addends that rules count and of tensors, by quantity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calc.derive import optimizer_state, saved_for
from calc.derive.accumulate import EXPERTS, TABLE
from calc.derive.loops import Group, by
from calc.derive.names import WorkKind
from calc.graph.step import bare_name
from calc.rules.reduction import REDUCTION
from calc.rules.registry import Registry, Rule
from calc.symbolic.expression import Expression, Negative, Number, Product, Sum
from calc.symbolic.readable import readable

_EACH, _REDUCED = "one FLOP for each result element of each operation listed, those of {}", "n − 1 for a reduction of n"

_TRANSFERS = (
    "an operator reads the distinct elements of each tensor argument and writes each result, so that a tensor passed twice is read twice:"
    " number of equal tensors · bytes of one element · shape"
)
_STORAGES = "a tensor takes the bytes of one element times its number of elements; a storage counts once"
_REASONS = {
    "parameters": "a parameter has as many elements as the product of its sizes; tied weights share one storage, which counts once",
    "parameters.non_embedding": "a parameter has as many elements as the product of its sizes; embedding tables and heads of"
    " their shape are left out",
    "gradients.bytes": "the backward leaves a gradient of the weight's shape in .grad: bytes of one element times number of elements",
    "optimizer_state.bytes": "the optimizer keeps these tensors from step to step: bytes of one element times number of elements",
    "activations.bytes": "autograd still holds these tensors when the forward returns; a storage counts once",
    "checkpoint.bytes": "the checkpoint has every storage once: those of the model, and in training those of the optimizer and the"
    " number of the iteration",
}

_ACTIVE = {
    EXPERTS: "a token uses only the experts that its router chooses",
    TABLE: "an embedding table counts whole by convention, though a token reads few of its rows",
}
_READ = "each weight that the forward of one token or sample reads is counted in full"


class Reasons:
    """Reasons by the rules of ``registry``, and by the equations of the ``optimizer``. ``shown`` is the expression of a factor in the
    model's dimensions."""

    def __init__(self, registry: Registry, optimizer: str, shown: Callable[[Any], Expression]) -> None:
        self._registry, self._optimizer, self._shown = registry, optimizer, shown

    def of(self, quantity: str, groups: Sequence[Group]) -> str:
        """Why these groups of one module have their amounts."""
        if groups[0].work is WorkKind.TRAFFIC:
            return _TRANSFERS
        if not any(self._rule(g) for g in groups):
            return self._of_tensors(quantity, groups) or _REASONS.get(quantity, _STORAGES)
        if groups[0].work is WorkKind.ELEMENTWISE:
            return self._elementwise(groups)
        return self._matmuls(groups)

    def _of_tensors(self, quantity: str, groups: Sequence[Group]) -> str:
        match quantity:
            case "parameters.active":
                return "; ".join(dict.fromkeys(_ACTIVE.get(g.label, _READ) for g in groups))
            case "activations.bytes":
                reasons = saved_for.in_words([use for g in groups for use in g.uses])
                return f"{reasons}; a storage counts once" if reasons else ""
            case "optimizer_state.bytes":
                return optimizer_state.in_words(self._optimizer, [g.label.text for g in groups])
        return ""

    def _rule(self, g: Group) -> Rule | None:
        rule = self._registry.find(g.rule)
        return rule if isinstance(rule, Rule) else None

    def _stated(self, groups: Sequence[Group]) -> dict[str, Rule]:
        """The rules of the groups, by the names of the operators as the rows have them."""
        return {bare_name(g.rule): rule for g in groups if (rule := self._rule(g))}

    # -- matrix multiplications -----------------------------------------------------------------------------------------

    def _matmuls(self, groups: Sequence[Group]) -> str:
        full = [*dict.fromkeys(self._stated([g for g in groups if not g.label.is_causal]).values())]
        masked = by(lambda g: self._written(g.factors[-2]), [g for g in groups if g.label.is_causal])
        reasons = [_argument(full[0], full[0].source)] if len(full) == 1 else _arguments(full)
        return "; ".join([*reasons, *(self._under_mask(length, rows) for length, rows in masked.items())])

    def _under_mask(self, length: str, groups: Sequence[Group]) -> str:
        """Why matmuls under a causal mask count T(T + 1)/2 pairs: their factors end in a width, T and T + 1."""
        pairs = readable(Product(tuple(self._shown(size) for size in groups[0].factors[-2:])))
        flop = dict.fromkeys(readable(Product((Number(2), self._shown(g.factors[-3])))) for g in groups)
        square = f"{length if length.isalnum() else f'({length})'}²"
        return (
            f"row t of a causal mask attends to t keys: 1 + 2 + … + {length} = {pairs}/2 of the {square} pairs of a query and a key;"
            f" {' or '.join(flop)} FLOP for each pair, head and matmul"
        )

    def _written(self, factor: Any) -> str:
        return readable(self._shown(factor))

    # -- elementwise work -----------------------------------------------------------------------------------------------

    def _elementwise(self, groups: Sequence[Group]) -> str:
        rules = self._stated(groups)
        reduced = any(self._may_reduce(factor) for g in groups for factor in g.factors)
        if len({*rules.values()}) == 1:
            rule = next(iter(rules.values()))
            return _argument(rule, "; ".join(_counted({"": rule}, reduced=reduced)))
        return "; ".join(_counted(rules, reduced=reduced))

    def _may_reduce(self, factor: Any) -> bool:
        """Whether a factor may be n − 1 operations of a reduction; a specialized size is a number, which does not tell."""
        match self._shown(factor):
            case Number(value):
                return value > 1
            case Sum((*_, last)):
                return last == Negative(Number(1))
        return False


def _counted(rules: Mapping[str, Rule], *, reduced: bool) -> list[str]:
    """How elementwise rules count, by the names of their operators: those of torch's references together, then what one of them adds."""
    listed = [rule.reference for rule in rules.values() if rule.reference and not rule.elementwise]
    each = [_EACH.format(listed[0] if len(listed) == 1 else "torch's references")] if listed else []
    covered = REDUCTION if listed and reduced else ""
    notes = {name: rule.elementwise or rule.source for name, rule in rules.items()}
    named = (f"{name}: {note}" if name else note for name, note in notes.items() if note and note != covered)
    return [*each, *([_REDUCED] if listed and reduced else []), *dict.fromkeys(named)]


def _arguments(rules: Sequence[Rule]) -> list[str]:
    """What several operators compute, and why they have their counts."""
    definitions, sources = (dict.fromkeys(texts) for texts in ((_definition(rule) for rule in rules), (rule.source for rule in rules)))
    return [f"{'; '.join(definitions)}: {'; '.join(sources)}"] if rules else []


def _definition(rule: Rule) -> str:
    return f"{rule.statement}{f' ({rule.convention})' if rule.convention else ''}"


def _argument(rule: Rule, count: str) -> str:
    """What the operator computes, with which shapes, and why it has this count."""
    shapes = f", with {rule.shapes.rstrip('.')}" if rule.shapes else ""
    return f"{rule.statement}{shapes}{f' ({rule.convention})' if rule.convention else ''}: {count}"
