"""A timeline written by hand, for reports: eight operators, three phases, three roles."""

from __future__ import annotations

from calc.derive.cuda_allocator import Simulated
from calc.derive.live_bytes import Alive, Column, Instant, Timeline, WithoutLargest
from calc.derive.names import TensorName

_STEPS = (
    ("forward", "aten.addmm.default", "h.0.mlp", 400, 100, 0),
    ("forward", "aten.gelu.default", "h.0.mlp", 400, 300, 0),
    ("forward", "aten.mm.default", "lm_head", 400, 600, 50),
    ("backward", "aten.mm.default", "lm_head", 400, 600, 1_200),
    ("backward", "aten.gelu_backward.default", "h.0.mlp", 400, 300, 200),
    ("backward", "aten.mm.default", "h.0.mlp", 400, 100, 400),
    ("optimizer", "aten.addcdiv_.default", "wte.weight", 400, 0, 400),
    ("optimizer", "aten.addcdiv_.default", "h.0.mlp.weight", 400, 0, 0),
)


def _instant(op: int, phase: str, operator: str, module_path: str, *values: int) -> Instant:
    roles = ("parameter", "activation", "temporary")
    return Instant(op, phase, operator, module_path, {role: value for role, value in zip(roles, values, strict=True) if value})


INSTANTS = tuple(_instant(op, *step) for op, step in enumerate(_STEPS))
BEFORE = Instant(-1, "", "", "", {"parameter": 400})


def timeline(fewer: dict[str, int] | None = None) -> Timeline:
    """Peaks at 2,200 bytes in the first operator of the backward."""
    return Timeline(
        sizes={"B": 2, "T": 5},
        fewer=fewer or {},
        operators=8,
        peak=INSTANTS[3],
        alive=(
            Alive("temporary", TensorName(operator="mm", module_path="lm_head"), 1_200, 1),
            Alive("activation", TensorName(operator="gelu", module_path="h.*.mlp"), 300, 2),
            *(Alive("parameter", TensorName(owner=f"h.*.weight_{i}"), 25, 1) for i in range(16)),
        ),
        landmarks=(("before the step", BEFORE), ("backward, highest", INSTANTS[3]), ("after the step", INSTANTS[-1])),
        columns=tuple(Column(i.op, i.op, i.phase, i) for i in INSTANTS),
        phases=(("forward", 0, 2), ("backward", 3, 5), ("optimizer", 6, 7)),
        allocated=() if fewer else (Simulated(1_700, 2_560, 2_097_152, 1), Simulated(2_200, 3_584, 2_097_152, 1)),
        without_largest=WithoutLargest(1_200, INSTANTS[2]),
    )
