"""New tensors and fills: the traffic is what is written; an argument that only gives its shape is not read."""

from __future__ import annotations

from calc.rules.registry import Cost, Operator, View, free, rule
from calc.rules.shapes import whole

WRITES = "writes elements: no arithmetic"

free(
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.empty_strided.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
    "aten.empty_permuted.default",
    because="allocates: no element is read or written",
)
free(
    "aten.zeros.default",
    "aten.ones.default",
    "aten.full.default",
    "aten.scalar_tensor.default",
    "aten.arange.default",
    "aten.arange.start",
    "aten.arange.start_step",
    "aten.linspace.default",
    "aten.eye.default",
    "aten.eye.m",
    "aten.tril_indices.default",
    "aten.triu_indices.default",
    because="writes constants and positions: no arithmetic",
    moves=True,
)
free(
    *(f"aten.{name}_window.{overload}" for name in ("hann", "hamming", "blackman") for overload in ("default", "periodic")),
    because="writes the weights of a window, which depend on its length alone: counted as 0, like positions",
    moves=True,
)
free(
    "aten.rand.default",
    "aten.randn.default",
    "aten.randint.default",
    "aten.randint.low",
    "aten.randperm.default",
    "aten.normal.float_float",
    because="writes random numbers, which are counted as 0",
    moves=True,
)


free(
    "aten.bernoulli.default",
    "aten.multinomial.default",
    "aten.poisson.default",
    "aten.normal.Tensor_float",
    "aten.normal.float_Tensor",
    "aten.normal.Tensor_Tensor",
    because="draws random numbers by the probabilities or means that it reads, which is counted as 0",
    moves=True,
)
free(
    "aten._sample_dirichlet.default",
    "aten._standard_gamma.default",
    because="draws random numbers by the concentrations that it reads, which is counted as 0",
    moves=True,
)


@rule(
    "aten.zeros_like.default",
    "aten.ones_like.default",
    "aten.full_like.default",
    "aten.rand_like.default",
    "aten.randn_like.default",
    "aten.randint_like.default",
    "aten.randint_like.low_dtype",
    "aten.bernoulli.p",
    "aten.new_zeros.default",
    "aten.new_ones.default",
    "aten.new_full.default",
    statement="y = constants or random numbers of a given shape, by default that of x",
    source=WRITES,
    convention="x is not read",
    shapes="x (*) → y (*).",
)
def like(op: Operator) -> Cost:
    return Cost(reads=())


@rule(
    "aten.fill_.Scalar",
    "aten.fill_.Tensor",
    "aten.zero_.default",
    "aten.uniform_.default",
    "aten.normal_.default",
    "aten.bernoulli_.float",
    "aten.bernoulli_.Tensor",
    "aten.exponential_.default",
    "aten.geometric_.default",
    "aten.cauchy_.default",
    "aten.log_normal_.default",
    statement="x = a constant, or random numbers",
    source=WRITES,
    convention="x is only written",
    shapes="x (*), a value or probabilities broadcast to (*).",
)
def fill_(op: Operator) -> Cost:
    source = op.value("value", op.value("p"))
    return Cost(reads=whole(source if isinstance(source, View) else None))
