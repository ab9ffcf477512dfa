"""What the peak consists of, in words: its largest parts, each with its share. Names of code are between backticks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from calc.derive.live_bytes import Alive, Timeline
from calc.derive.names import MODEL_INPUT, TensorName
from calc.derive.part_names import EXPERTS, NAMES, NORMS
from calc.derive.result import Candidate, Derivation
from calc.errors import listed
from reports.page.operator_words import in_words, operator_words, without_backticks
from reports.page.parts import share
from reports.typeset import numbers, paths
from reports.typeset.numbers import NBSP, bytes_text

_PARTS = 3
_FEW = 10  # a part of less than a tenth of the peak says little about it


@dataclass(frozen=True, slots=True)
class PeakPart:
    """A part of the peak: its share, its bytes, and what it consists of, in words."""

    share: str
    size: str
    words: str

    @property
    def text(self) -> str:
        return f"{self.share}, {self.size}: {self.words}"


def largest_parts(derivation: Derivation, peak: int, timeline: Timeline | None, candidate: Candidate | None) -> tuple[PeakPart, ...]:
    """The largest parts of the peak: of a timeline, storages that belong together; else the roles of the candidate."""
    if timeline is not None and timeline.alive:
        weights = _parts_of_weights(derivation)
        rows = _largest_groups(timeline.alive, partial(_together, weights=weights))
        if _total(rows[0]) * _FEW < peak:
            rows = _largest_groups(timeline.alive, partial(_by_operator, weights=weights))
        return tuple(PeakPart(share(_total(group), peak), bytes_text(_total(group)), _group(group, weights)) for group in rows)
    if candidate is None:
        return ()
    roles = sorted(candidate.part_values.items(), key=lambda item: -item[1])[:_PARTS]
    return tuple(PeakPart(share(nbytes, peak), bytes_text(nbytes), _PLURAL.get(role, role)) for role, nbytes in roles)


_PLURAL = {
    "parameter": "parameters",
    "master weight": "master weights",
    "buffer": "buffers",
    "input": "inputs of the model",
    "gradient": "gradients",
    "activation": "activations",
    "temporary": "temporaries",
}


def _parts_of_weights(derivation: Derivation) -> Mapping[str, str]:
    """Parameter → the part of the model that it belongs to, of those with a name."""
    parts = derivation.quantities["parameters"].parts if "parameters" in derivation.quantities else ()
    return {addend.module_path: part.part for part in parts if part.part in NAMES for addend in part.addends}


def _largest_groups(alive: Sequence[Alive], key: Callable[[Alive], tuple[str, ...]]) -> list[tuple[Alive, ...]]:
    groups = (tuple(group) for _, group in groupby(sorted(alive, key=key), key=key))
    return sorted(groups, key=_total, reverse=True)[:_PARTS]


def _total(group: Sequence[Alive]) -> int:
    return sum(row.total for row in group)


def _together(row: Alive, weights: Mapping[str, str]) -> tuple[str, ...]:
    """What the rows of one part share: a role and a part of the model, or, of results of operators, a module and a size."""
    if row.role in _OF_PARAMETERS:
        name = row.name.owner
        return (row.role, weights.get(name, ""), "" if name in weights else _block_of(name))
    same = ("result", row.name.module_path, str(row.each))
    return same if row.number == 1 else (*same, row.role, str(row.name))


def _by_operator(row: Alive, weights: Mapping[str, str]) -> tuple[str, ...]:
    """Coarser, for a model of many different modules, no one of which holds much: results of one operator, wherever it runs."""
    operator = row.name.operator
    return ("result", operator) if operator and row.role not in _OF_PARAMETERS else _together(row, weights)


def _group(rows: Sequence[Alive], weights: Mapping[str, str]) -> str:
    """Storages of one part in words."""
    first, number = rows[0], sum(row.number for row in rows)
    if first.role in _OF_PARAMETERS:
        return _of_parameters(rows, number, weights)
    if len(rows) == 1:
        return _tensor(first)
    operator, *others = dict.fromkeys(row.name.operator or row.name.owner for row in rows)
    if not others and (len(rows) > _PARTS or len({row.each for row in rows}) > 1):
        return f"{numbers.integer(number)} outputs of the {operator_words(operator)} (`{without_backticks(operator)}`)"
    outputs = [*dict.fromkeys(_named(row.name) for row in rows)]
    tensors = f"{numbers.integer(number)} tensors of {bytes_text(first.each)} each"
    if len(outputs) < len(rows):  # as one saved for the backward beside the gradient of another: their roles tell them apart
        return f"{tensors}: {listed([_one_of_role(row) for row in rows])}, outputs {listed(outputs)}"
    return f"{tensors}: the outputs {listed(outputs)}"


def _one_of_role(row: Alive) -> str:
    """``an activation``, ``2 temporaries``."""
    if row.number > 1:
        return f"{numbers.integer(row.number)} {_PLURAL.get(row.role, row.role)}"
    return f"{'an' if row.role[0] in 'aeiou' else 'a'} {row.role}"


def _of_parameters(rows: Sequence[Alive], number: int, weights: Mapping[str, str]) -> str:
    """``the gradients of the feed-forward weights (`h.*.mlp`, 24 tensors)``."""
    names = [*dict.fromkeys(row.name.owner for row in rows)]
    one, several = _OF_PARAMETERS[rows[0].role]
    if len(names) == 1 and "*" not in names[0]:
        return f"{one} `{without_backticks(names[0])}`"
    part = weights.get(names[0], "")
    words = f"{_ONE_OF.get(part, part)} weights".strip()
    blocks = paths.pattern([*dict.fromkeys(map(_block_of, names))])
    return f"{several} {words} (`{without_backticks(blocks)}`, {numbers.integer(number)} tensors)"


_ONE_OF = {EXPERTS: "expert", NORMS: "norm"}
_OF_PARAMETERS = {
    "parameter": ("the parameter", "the"),
    "master weight": ("the master weight of", "the master copies of the"),
    "optimizer state": ("the optimizer state of", "the optimizer state of the"),
    "gradient": ("the gradient of", "the gradients of the"),
}


def _block_of(parameter: str) -> str:
    """The block of the model that a parameter belongs to: ``h.*.mlp`` of ``h.*.mlp.c_fc.weight``, ``lm_head`` of ``lm_head.weight``."""
    *module, _ = parameter.split(".")
    return ".".join(module[: module.index("*") + 2] if "*" in module else module) or parameter


def _tensor(row: Alive) -> str:
    return f"{numbers.integer(row.number)}{NBSP}× {_storage(row.name)}" if row.number > 1 else _storage(row.name)


def _storage(name: TensorName) -> str:
    """A storage in words: one that an operator allocates is its output."""
    return f"the output {_named(name)}" if name.operator else _named(name)


def _named(name: TensorName) -> str:
    if name.owner == MODEL_INPUT:
        return "the model's input"
    if not name.operator:
        return without_backticks(str(name))
    return f"{f'`{without_backticks(name.part)}` ' if name.part else ''}of {in_words(name.operator, name.module_path)}"
