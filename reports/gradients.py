"""What ``napkin gradients`` shows: the forward's equations, the gradients from the loss back, layers that are alike once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.text import Text as RichText

from calc.differentiate import Checked
from calc.equations import ir
from calc.equations.derived import Derived
from calc.equations.names import layer_of
from calc.equations.numeric import needed
from reports.equations import Equation, Writer, relative
from reports.escape import visible
from reports.letters import flops_text, in_dimensions

FORWARD, GRADIENT, PARAMETER = "forward", "gradient", "parameter gradient"


@dataclass(frozen=True, slots=True)
class Entry:
    """One equation of a report. ``group`` is the layer it belongs to (or nothing), ``of`` the full name of its tensor, ``reading`` the
    equation with tensors of other places marked."""

    kind: str
    of: str
    group: str
    equation: Equation
    because: tuple[str, ...] = ()
    zero: bool = False
    reading: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Equations of one place in the model, or of several layers that are alike, whose pattern ``title`` is."""

    title: str
    layers: tuple[str, ...]
    entries: tuple[Entry, ...]


def entries(derived: Derived, matrix: bool = False, latex: bool = False, only: str | None = None) -> list[Entry]:
    """Every equation, forward first, then gradients from the loss back; of one parameter only what its gradient rests on."""
    wanted = None if only is None else _resting(derived, only)
    found = [] if only is not None else _forward(derived, matrix, latex)
    readers = _first_readers(derived)
    leaves = set(derived.parameters.values())

    def when(target: int) -> float:
        return readers.get(target, target) - 0.5 if target in leaves else target

    for step in sorted(derived.steps, key=lambda s: when(s.target), reverse=True):
        target = step.target
        if target not in derived.names.of or (wanted is not None and target not in wanted):
            continue
        node = derived.equations[target]
        if isinstance(node.op, ir.Leaf) and target not in leaves:
            continue
        site = derived.equations[readers[target]].site if target in readers else node.site
        group = layer_of(site)
        writer = Writer(derived, latex, matrix, group)
        equation = writer.gradient(target)
        kind = PARAMETER if target in leaves else GRADIENT
        name = node.op.name if isinstance(node.op, ir.Leaf) else derived.names.of[target]
        because = (*_because(derived, step.because, group), *writer.notes)
        reading = str(Writer(derived, False, matrix, group, marked=True).gradient(target)) if group else ""
        found.append(Entry(kind, name, group, equation, because, step.node is None, reading))
    return found


def _forward(derived: Derived, matrix: bool, latex: bool) -> list[Entry]:
    made = []
    for index in needed(derived.equations, [derived.loss]):
        node = derived.equations[index]
        if index in derived.names.of and not isinstance(node.op, ir.Leaf | ir.Literal):
            group = layer_of(node.site)
            reading = str(Writer(derived, False, matrix, group, marked=True).forward(index)) if group else ""
            equation = Writer(derived, latex, matrix, group).forward(index)
            made.append(Entry(FORWARD, derived.names.of[index], group, equation, reading=reading))
    return made


def _first_readers(derived: Derived) -> dict[int, int]:
    found: dict[int, int] = {}
    for node in derived.equations.nodes[: derived.forward]:
        for source in ir.sources(node.op):
            found.setdefault(source, node.index)
    return found


def _resting(derived: Derived, name: str) -> set[int]:
    """The tensors whose gradients a parameter's gradient is made of."""
    step = derived.parameter(name)
    if step is None:
        return set()
    if step.node is None:
        return {step.target}
    nodes = set(needed(derived.equations, [step.node]))
    return {s.target for s in derived.steps if s.node in nodes and s.target not in derived.parameters.values()} | {step.target}


def _because(derived: Derived, said: Sequence[tuple[str, int]], layer: str) -> tuple[str, ...]:
    """What a simplification rests on, tensors by name."""
    names = derived.names.of
    found = []
    for words, node in said:
        if node in names:
            found.append(f"{words} {relative(names[node], layer)}" if not words.endswith("1") else words)
        elif node < 0 or words.endswith("1"):
            found.append(words)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain: the share that ``of`` takes of the gradient of ``through``, and the rule of its primitive."""

    of: str
    through: str
    primitive: str
    rule: str
    equation: Equation


def chain(derived: Derived, latex: bool = False, only: str | None = None) -> list[Link]:
    """The chain rule link by link, before anything is simplified, from the loss back."""
    writer, names = Writer(derived, latex, raw=True), derived.names_apart
    wanted = None if only is None else _chained(derived, only)
    found = []
    for share in derived.found.shares:
        if wanted is None or share.target in wanted:
            through = derived.equations[share.through]
            called = [names.of.get(n, "") for n in (share.target, share.through)]
            if all(called):
                found.append(Link(called[0], called[1], type(through.op).__name__.lower(), share.because, writer.share(share)))
    return found


def _chained(derived: Derived, name: str) -> set[int]:
    """A parameter and the tensors between it and the loss."""
    derived.parameter(name)
    found = {derived.parameters[name]}
    for node in derived.equations.nodes[: derived.forward]:
        if any(source in found for source in ir.sources(node.op)):
            found.add(node.index)
    return found


# -- layers ----------------------------------------------------------------------------------------------------------------


def groups(found: Sequence[Entry]) -> list[Group]:
    """The equations by place, in order; layers whose equations read the same are one group."""
    by_kind: dict[str, list[Group]] = {}
    for forward in (True, False):
        made: list[Group] = []
        for entry in found:
            if (entry.kind == FORWARD) != forward:
                continue
            if made and made[-1].title == entry.group:
                made[-1] = replace(made[-1], entries=(*made[-1].entries, entry))
            else:
                made.append(Group(entry.group, (entry.group,) if entry.group else (), (entry,)))
        by_kind[str(forward)] = _alike(made)
    return [*by_kind["True"], *by_kind["False"]]


def _alike(found: Sequence[Group]) -> list[Group]:
    made: list[Group] = []
    for group in found:
        if made and _is_alike(group, made[-1]):
            made[-1] = replace(made[-1], title=_pattern(group.layers[0]), layers=(*made[-1].layers, *group.layers))
        else:
            made.append(group)
    return made


def _is_alike(group: Group, before: Group) -> bool:
    both = group.layers and before.layers
    return bool(both) and _pattern(group.layers[0]) == _pattern(before.layers[0]) and _reading(group) == _reading(before)


def _pattern(layer: str) -> str:
    return re.sub(r"\d+$", "*", layer)


def _reading(group: Group) -> tuple[str, ...]:
    """The lines of a group, tensors of other places by the order in which they come."""
    text = "\n".join(e.reading for e in group.entries)
    for i, name in enumerate(dict.fromkeys(re.findall("⟦.*?⟧", text))):
        text = text.replace(name, f"(outside {i})")
    return tuple(text.split("\n"))


# -- on a terminal ---------------------------------------------------------------------------------------------------------


def show(derived: Derived, matrix: bool, only: str | None, checked: Checked | None, out: Console, steps: bool = False) -> None:
    """The equations with shapes, FLOPs and reasons; with ``steps`` the links of the chain before them."""
    _say(out, f"{derived.program.model}: gradients by the chain rule", "bold")
    for name, value in derived.program.fixed.items():
        _say(out, f"{name} = {value} in these equations; every other size is a symbol")
    for note in (*derived.program.notes, *derived.notes):
        _say(out, f"note: {note}")
    if steps:
        _show_chain(derived, only, out)
    heading = ""
    for group in groups(entries(derived, matrix, only=only)):
        kind = "Forward" if group.entries[0].kind == FORWARD else "Gradients, from the loss back"
        if kind != heading:
            heading = kind
            _say(out, f"\n{kind}", "bold")
        _say(out, f"\n{_titled(group)}", "cyan")
        for entry in group.entries:
            _line(derived, entry, out)
    _say(
        out,
        f"\nmatrix products: forward {flops_text(derived.forward_flops, derived.program)} FLOP,"
        f" backward {flops_text(derived.backward_flops, derived.program)} FLOP",
    )
    with_inputs = derived.backward_flops_with_inputs
    if with_inputs != derived.backward_flops:
        _say(out, f"backward if the inputs needed gradients too: {flops_text(with_inputs, derived.program)} FLOP")
    if derived.zero:
        _say(out, f"zero whatever the values: the gradients of {', '.join(derived.zero)}")
    if checked is not None:
        show_checked(checked, out)


def _show_chain(derived: Derived, only: str | None, out: Console) -> None:
    _say(out, "\nForward, step by step", "bold")
    writer = Writer(derived, raw=True)
    for index in needed(derived.equations, [derived.loss]):
        if index in derived.names_apart.of and not isinstance(derived.equations[index].op, ir.Leaf | ir.Literal):
            equation = writer.forward(index)
            _say(out, f"    {equation}   {equation.shape}")
    _say(out, "\nThe chain rule, link by link", "bold")
    rules: dict[str, None] = {}
    for link in chain(derived, only=only):
        rules[f"{link.primitive}: {link.rule}"] = None
        flops = f"   {flops_text(link.equation.flops, derived.program)} FLOP" if link.equation.flops != 0 else ""
        _say(out, f"    through {link.through}: {link.equation}   {link.equation.shape}{flops}   ({link.primitive})")
    _say(out, "\n  by these rules")
    for rule in rules:
        _say(out, f"    {rule}")


def _titled(group: Group) -> str:
    if len(group.layers) > 1:
        return f"{group.title}   ({len(group.layers)} layers, alike: {', '.join(group.layers)})"
    return group.title or "(model)"


def _line(derived: Derived, entry: Entry, out: Console) -> None:
    flops = f"   {flops_text(entry.equation.flops, derived.program)} FLOP" if entry.equation.flops != 0 else ""
    mark = "  * " if entry.kind == PARAMETER else "    "
    _say(out, f"{mark}{entry.equation}   {entry.equation.shape}{flops}")
    for because in entry.because:
        _say(out, f"        {because}", "dim")
    if entry.zero and not entry.because:
        _say(out, "        every share of it is zero", "dim")


def show_checked(checked: Checked, out: Console) -> None:
    """The comparisons with autograd and of FLOPs."""
    _say(out, "\nBeside autograd, in float64", "bold")
    for trial in checked.trials:
        at = ", ".join(f"{n}={v}" for n, v in trial.sizes.items())
        verdict = "holds" if trial.ok else "FAILED"
        _say(
            out,
            f"  {verdict}: {at}: furthest {trial.worst:.1e} of the largest gradient ({trial.where}); central differences at"
            f" {trial.places} places {trial.slope:.1e}" + (f", {trial.kinks} near a kink left out" if trial.kinks else ""),
        )
    for flops in checked.flops:
        verdict = "equal" if flops.equations == flops.executed else "differs" if flops.because else "FAILED"
        why = f": {flops.because}" if flops.because else ""
        _say(out, f"  {verdict}: {flops.phase} FLOPs {flops.equations:,} by the equations, {flops.executed:,} executed{why}")


def _say(out: Console, text: str, style: str = "") -> None:
    out.print(RichText(_printable(text), style=style), soft_wrap=True)


def _printable(text: str) -> str:
    return "\n".join(visible(line) for line in text.split("\n"))


# -- as data ---------------------------------------------------------------------------------------------------------------


def document(derived: Derived, only: str | None, checked: Checked | None) -> dict[str, Any]:
    """Everything as plain data: each equation in both notations, as text and as LaTeX."""
    index, matrix = entries(derived, only=only), entries(derived, matrix=True, only=only)
    latex = entries(derived, latex=True, only=only)
    made: dict[str, Any] = {
        "schema": 1,
        "model": derived.program.model,
        "numbers": dict(derived.program.fixed),
        "equations": [
            {
                "kind": e.kind,
                "of": e.of,
                "layer": e.group or None,
                "shape": e.equation.shape,
                "index": str(e.equation),
                "matrix": str(m.equation),
                "latex": str(x.equation),
                "flops": str(in_dimensions(e.equation.flops, derived.program)),
                "because": list(e.because),
                "zero": e.zero,
            }
            for e, m, x in zip(index, matrix, latex, strict=True)
        ],
        "chain": [
            {
                "of": link.of,
                "through": link.through,
                "primitive": link.primitive,
                "rule": link.rule,
                "shape": link.equation.shape,
                "index": str(link.equation),
                "flops": str(in_dimensions(link.equation.flops, derived.program)),
            }
            for link in chain(derived, only=only)
        ],
        "flops": {
            "forward": str(in_dimensions(derived.forward_flops, derived.program)),
            "backward": str(in_dimensions(derived.backward_flops, derived.program)),
            "backward with gradients of inputs": str(in_dimensions(derived.backward_flops_with_inputs, derived.program)),
        },
        "zero": list(derived.zero),
        "conditions": [{"expr": c.expr, "holds": c.holds, "where": c.where} for c in derived.program.conditions],
        "notes": [*derived.program.notes, *derived.notes],
        "provenance": dict(derived.program.provenance),
    }
    if checked is not None:
        made["checks"] = _checks(checked)
    return made


def _checks(checked: Checked) -> dict[str, Any]:
    trials = [
        {
            "sizes": dict(t.sizes),
            "verdict": "passed" if t.ok else "failed",
            "error": t.worst,
            "at": t.where,
            "central difference error": t.slope,
            "places": t.places,
            "kinks": t.kinks,
        }
        for t in checked.trials
    ]
    flops = [
        {"phase": f.phase, "sizes": dict(f.sizes), "equations": f.equations, "executed": f.executed, "because": f.because or None}
        for f in checked.flops
    ]
    return {"autograd": trials, "flops": flops}
