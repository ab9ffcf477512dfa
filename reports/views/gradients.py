"""``napkin gradients`` on a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.derived import Derived
from calc.mathematics.autodiff.numeric import needed
from calc.mathematics.autodiff.sizes import in_dimensions
from calc.mathematics.gradients import Checked
from calc.symbolic.assignments import TYPED, sizes_text
from reports.page.gradients import FORWARD, PARAMETER, EquationEntry, EquationGroup, chain, entries, groups, in_place_of, together
from reports.typeset.equations import Writer
from reports.typeset.letters import flops_text
from reports.typeset.tensor_names import TensorNames
from reports.writers.terminal import Terminal

# -- on a terminal ---------------------------------------------------------------------------------------------------------


def show(derived: Derived, matrix: bool, only: str | None, checked: Checked | None, out: Terminal, steps: bool = False) -> None:
    """The equations with shapes, FLOPs and reasons; with ``steps`` the links of the chain before them."""
    _say(out, f"{derived.program.model}: gradients by the chain rule", "bold")
    for name, value in derived.program.fixed.items():
        _say(out, f"{name} = {value} in these equations only")
    for note in (*derived.program.notes, *derived.notes):
        _say(out, f"note: {note}")
    if steps:
        _show_chain(derived, only, out)
    heading = ""
    equations = entries(derived, matrix, only=only)
    if notation := together(entry.notation for entry in equations).sentence:
        _say(out, notation)
    for group in groups(equations):
        kind = "Forward" if group.entries[0].kind == FORWARD else "Gradients, from the loss back"
        if kind != heading:
            heading = kind
            _say(out, f"\n{kind}", "bold")
        _say(out, f"\n{_titled(group)}", "cyan")
        if group.replaced:
            _say(out, f"    the equations of {group.layers[0]}; {in_place_of(group.layers[-1], group.replaced)}", "dim")
        for entry in group.entries:
            _line(entry, out)
    _say(
        out,
        f"\nmatmuls: forward {flops_text(derived.forward_flops, derived.program)} FLOP,"
        f" backward {flops_text(derived.backward_flops, derived.program)} FLOP",
    )
    with_inputs = derived.backward_flops_with_inputs
    if with_inputs != derived.backward_flops:
        _say(out, f"backward if the inputs needed gradients too: {flops_text(with_inputs, derived.program)} FLOP")
    if derived.zero:
        _say(out, f"zero whatever the values: the gradients of {', '.join(derived.zero)}")
    if checked is not None:
        show_checked(checked, out)


def _show_chain(derived: Derived, only: str | None, out: Terminal) -> None:
    _say(out, "\nForward, step by step", "bold")
    writer = Writer(TensorNames(derived, raw=True))
    for index in needed(derived.equations, [derived.loss]):
        if index in derived.names_of_every_step.of and not isinstance(derived.equations[index].op, ir.Leaf | ir.Literal):
            equation = writer.forward(index)
            _say(out, f"    {equation}   {equation.shape}")
    _say(out, "\nThe chain rule, link by link", "bold")
    rules: dict[str, None] = {}
    for link in chain(derived, only=only):
        rules[f"{link.primitive}: {link.rule}"] = None
        flops = f"   {link.equation.flops_text} FLOP" if link.equation.flops_text else ""
        _say(out, f"    through {link.through}: {link.equation}   {link.equation.shape}{flops}   ({link.primitive})")
    _say(out, "\n  by these rules")
    for rule in rules:
        _say(out, f"    {rule}")


def _titled(group: EquationGroup) -> str:
    if len(group.layers) > 1:
        return f"{group.title}   ({len(group.layers)} layers, alike: {', '.join(group.layers)})"
    return group.title or "(model)"


def _line(entry: EquationEntry, out: Terminal) -> None:
    flops = f"   {entry.equation.flops_text} FLOP" if entry.equation.flops_text else ""
    mark = "  * " if entry.kind == PARAMETER else "    "
    _say(out, f"{mark}{entry.equation}   {entry.equation.shape}{flops}")
    for words in (*entry.because, *entry.notes):
        _say(out, f"        {words}", "dim")
    if entry.zero and not entry.because:
        _say(out, "        every share of it is zero", "dim")


def show_checked(checked: Checked, out: Terminal) -> None:
    """The comparisons with autograd and of FLOPs."""
    _say(out, "\nBeside autograd, in float64", "bold")
    for trial in checked.trials:
        at = sizes_text(trial.sizes, TYPED)
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


def _say(out: Terminal, text: str, style: str = "") -> None:
    """Lines that are folded between words in a terminal, where names would be split otherwise. In a file an equation stays one line."""
    for line in text.split("\n"):
        out.line(line, style=style, hang=8, fold=out.is_terminal)


# -- as data ---------------------------------------------------------------------------------------------------------------


def document(derived: Derived, only: str | None, checked: Checked | None) -> dict[str, Any]:
    """Everything as plain data: each equation in both notations, as text and as LaTeX."""
    index, matrix = entries(derived, only=only), entries(derived, matrix=True, only=only)
    latex = entries(derived, latex=True, only=only)
    fields: dict[str, Any] = {
        "schema": 2,
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
        "guards": [{"expr": c.expr, "holds": c.outcome, "where": c.where} for c in derived.program.guards],
        "notes": [*derived.program.notes, *derived.notes],
        "provenance": dict(derived.program.provenance),
    }
    if checked is not None:
        fields["checks"] = _checks(checked)
    return fields


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
