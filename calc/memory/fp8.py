"""A linear layer whose forward multiplies in fp8: what it saves for the backward and which scales it has, derived and run for real.

No precision recipe of a whole step: torch multiplies in fp8, but has no derivative of that, no autocast to fp8, and no optimizer on fp8
tensors. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calc.errors import BadInputError, suggestion
from calc.pipeline.verdict import FAILED, WITHIN, Verdict, judged
from calc.symbolic.exact import evaluate_text

SCALINGS = {"tensor": "one scale per tensor", "row": "one scale per row of the input and of the weight"}
RUN_AT = {"B": 5, "D": 7, "K": 11}
_ROUNDING = 2.0**-8  # half a unit of bf16's last place, twice: of the product, and of an operand


@dataclass(frozen=True, slots=True)
class Fp8Quantity:
    """A quantity of the layer x (B, D) by W (K, D) as an expression in B, D and K."""

    name: str
    expr: str
    unit: str
    because: str

    def at(self, sizes: Mapping[str, int]) -> int:
        return int(evaluate_text(self.expr, sizes))


def fp8_layer(scaling: str) -> tuple[Fp8Quantity, ...]:
    """The quantities of the layer, by the granularity of its scales."""
    if scaling not in SCALINGS:
        raise BadInputError(f"unknown scaling {scaling[:40]!r}: {suggestion(scaling, SCALINGS)}")
    of_input, scales = ("4", "2") if scaling == "tensor" else ("4*B", "B + K")
    return (
        Fp8Quantity(
            "saved for backward", f"B*D + {of_input}", "bytes", "the input in e4m3 and its scale in fp32; the weight is a parameter"
        ),
        Fp8Quantity("saved by a bf16 forward", "2*B*D", "bytes", "the input in bf16"),
        Fp8Quantity("scales", scales, "scales", "of input and weight: the largest magnitude over 448, the largest number of e4m3"),
        Fp8Quantity(
            "fp8 copies in the forward", "B*D + D*K", "bytes", "input and weight, 1 byte each; that of the weight is freed after it"
        ),
        Fp8Quantity("FLOPs of the forward", "2*B*D*K", "FLOP", "one matmul, in fp8"),
        Fp8Quantity("FLOPs of the backward", "4*B*D*K", "FLOP", "two matmuls in bf16: torch has no derivative of an fp8 matmul"),
    )


def fp8_checks(scaling: str) -> tuple[Verdict[int | float], ...]:
    """The layer's quantities beside a real forward and backward at ``RUN_AT``, on the CPU."""
    from calc.measure.fp8 import fp8_forward

    run = fp8_forward(**RUN_AT, scaling=scaling)
    derived = {quantity.name: quantity.at(RUN_AT) for quantity in fp8_layer(scaling)}
    exact = {
        "saved for backward": (run.saved, "torch.autograd.graph.saved_tensors_hooks"),
        "FLOPs of the forward": (run.forward_flops, "torch.utils.flop_counter"),
        "FLOPs of the backward": (run.backward_flops, "torch.utils.flop_counter"),
    }
    checks: list[Verdict[int | float]] = [judged(name, derived[name], value, instrument) for name, (value, instrument) in exact.items()]
    for name, error in (("the result", run.error), ("the gradient of the weight", run.weight_error)):
        verdict = WITHIN if error <= _ROUNDING else FAILED
        because = "2⁻⁸ of the largest element: bf16 keeps 8 bits"
        checks.append(Verdict(f"error of {name}", 0.0, float(f"{error:.2g}"), "the fp8 operands in fp64", verdict, because=because))
    return tuple(checks)


def fp8_offered() -> dict[str, str]:
    """For each use of fp8, an empty text if the installed torch runs it on the CPU, else its error."""
    from calc.measure.fp8 import fp8_offered

    return fp8_offered()


def fp8_document() -> dict[str, Any]:
    """The layer, its checks, and what torch runs, as plain data."""
    return {
        "run_at": dict(RUN_AT),
        "scalings": [
            {
                "scaling": scaling,
                "quantities": [
                    {"name": q.name, "expr": q.expr, "value": q.at(RUN_AT), "unit": q.unit, "because": q.because}
                    for q in fp8_layer(scaling)
                ],
                "checks": [
                    {"quantity": c.quantity, "derived": c.derived, "measured": c.measured, "verdict": c.verdict}
                    for c in fp8_checks(scaling)
                ],
            }
            for scaling in SCALINGS
        ],
        "torch_on_cpu": {use: error or "runs" for use, error in fp8_offered().items()},
    }
