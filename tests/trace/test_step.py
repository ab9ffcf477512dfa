"""What a trace contains: module paths, storages with their lifetimes, roles, dtypes, calls, with sizes as symbols."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc.dimensions import Dim
from calc.graph import serialize
from calc.graph.step import PHASES, ROLES, Graph, Op, StepTrace, Tensor
from calc.spec import Spec
from calc.symbolic.algebra import Algebra
from tests.quick import few
from tests.trace import modules
from tests.trace.modules import Layers, module_paths, ops, spec


class Replacing(nn.Module):
    """Three layers, each of which puts a new activation in the place of its own before it runs."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            del layer[1]
            layer.append(nn.Tanh())
            x = layer(x)
        return nn.Sigmoid()(x)


def attention() -> Spec:
    return spec(
        lambda n: modules.Attention(n.d, n.h),
        dims={"B": 2, "T": 7, "d": Dim(12, multiple_of="h"), "h": 3},
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
    )


class Unused(modules.Weighted):
    """A weight that takes no part."""

    def __init__(self, d: Any) -> None:
        super().__init__(d, lambda x: x)
        self.idle = nn.Parameter(torch.empty(d, d))


class Initialized(nn.Module):
    """A layer whose weights are set by functions that ask for the fan-in."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(d, 2 * d)
        nn.init.kaiming_normal_(self.linear.weight)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.trunc_normal_(self.linear.bias, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y


MODELS = {
    "stack": modules.stack(),
    "tied": modules.tied(),
    "nested": spec(lambda n: modules.Nested(n.d)),
    "buffers": spec(lambda n: modules.Buffered(n.d)),
    "attention": attention(),
    "dropout": spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d), nn.Dropout(0.25), nn.Linear(n.d, n.d))),
    "linear": spec(lambda n: nn.Linear(n.d, n.d), optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5)),
    "norms": spec(lambda n: nn.Sequential(nn.LayerNorm(n.d), nn.RMSNorm(n.d))),
    "frozen": spec(lambda n: nn.Sequential(nn.Linear(n.d, n.d).requires_grad_(False), nn.Linear(n.d, 5))),
    "unused": spec(lambda n: Unused(n.d)),
    "initialized": spec(lambda n: Initialized(n.d)),
}


@functools.cache
def graph(name: str, optimizer: str = "adamw", attention: str = "fused") -> Graph:
    """The graph of one of ``MODELS``, traced once for all tests."""
    return calc.trace(MODELS[name], optimizer=optimizer, attention=attention, cache=False)


def symbolic(name: str, optimizer: str = "adamw", attention: str = "fused") -> StepTrace:
    return graph(name, optimizer, attention).traces[0]


def first_trace(s: Spec) -> StepTrace:
    return calc.trace(s, optimizer="sgd", cache=False).traces[0]


# -- where operators run ---------------------------------------------------------------------------------------------------


def test_an_operator_runs_at_the_module_whose_forward_is_on_the_stack() -> None:
    """Inside a part of a part; the model's own arithmetic at its top; the loss outside of it."""
    trace = symbolic("nested")

    assert ["outer.0", "outer.2"] == module_paths(trace, "forward", "addmm")
    assert ["outer.1"] == module_paths(trace, "forward", "gelu")
    assert ["(model)"] == module_paths(trace, "forward", "add")
    assert ["(loss)"] == module_paths(trace, "forward", "sum")


def test_a_module_that_is_used_twice_runs_twice_under_one_name() -> None:
    """Its weight is one parameter, its products are two."""
    traced = graph("nested")

    assert ["shared", "shared"] == module_paths(traced.traces[0], "forward", "mm")
    assert ["shared.weight"] == [name for name, _ in traced.traces[0].parameters if name.startswith("shared")]
    # d² shared, 2d² + 2d and 2d² + d outside
    assert calc.derive(traced)["parameters"].text == "5*d**2 + 3*d"


def test_what_all_layers_share_runs_in_the_layer_that_calls_it() -> None:
    """Its weight is one parameter under its first name; the layers are alike."""
    trace = first_trace(spec(lambda n: Layers(n.d), dims={"B": 2, "d": 5}, inputs=lambda n: (torch.randn(n.B, n.d),)))

    assert ["layers.0.0", "layers.0.1.1", "layers.1.0", "layers.1.1.1"] == module_paths(trace, "forward", "mm")
    assert ["layers.0.0.weight", "layers.0.1.1.weight", "layers.1.0.weight"] == [name for name, _ in trace.parameters]


def test_a_backward_operator_runs_at_the_module_path_it_differentiates() -> None:
    """Two products for each linear layer whose input needs a gradient, one for the first."""
    trace = symbolic("nested")

    assert ["outer.1"] == module_paths(trace, "backward", "gelu_backward")
    assert ["shared", "shared", "outer.2", "outer.2", "outer.0", "outer.0", "shared"] == module_paths(trace, "backward", "mm")
    assert [True] * 7 == [bool(op.node) for op in ops(trace, "backward") if op.name == "aten.mm.default"]


def test_a_module_that_a_forward_puts_in_place_of_another_has_its_name() -> None:
    """The new one may be where in memory an old one of another layer was. What is no part of the model runs in the part that calls it."""
    trace = first_trace(spec(lambda n: Replacing(n.d), dims={"B": 2, "d": 5}, inputs=lambda n: (torch.randn(n.B, n.d),)))

    assert ["layers.0.1", "layers.1.1", "layers.2.1"] == module_paths(trace, "forward", "tanh")
    assert ["(model)"] == module_paths(trace, "forward", "sigmoid")


def test_an_optimizer_operator_runs_at_its_parameter() -> None:
    """A step of SGD is one in-place addition for each of 5 tensors."""
    trace = symbolic("nested", "sgd")

    assert ["outer.0.weight", "outer.0.bias", "outer.2.weight", "outer.2.bias", "shared.weight"] == module_paths(trace, "optimizer", "add_")


def test_phases_follow_each_other_in_each_of_two_steps() -> None:
    """Forward, backward, optimizer; zero_grad runs no operator."""
    trace = symbolic("stack")
    order = [(step, phase) for (step, phase), _ in itertools.groupby((op.step, op.phase) for op in trace.ops)]

    assert order == [(step, phase) for step in (1, 2) for phase in PHASES[:3]]
    assert [op.index for op in trace.ops] == list(range(len(trace.ops)))


# -- sizes ---------------------------------------------------------------------------------------------------------------


def test_every_declared_size_is_a_symbol_in_the_trace() -> None:
    """x (B, d) times 2d x d: no number stands where a size was."""
    traced = graph("nested")
    product = next(op for op in ops(traced.traces[0], "forward") if op.module_path == "outer.0" and op.name == "aten.addmm.default")

    assert traced.symbols == ("B", "d")
    assert traced.traces[0].sizes == {}
    assert [("2*d",), ("B", "d"), ("d", "2*d")] == [value.shape for _, value in product.args if isinstance(value, Tensor)]
    assert product.outputs[0].shape == ("B", "2*d")


def test_an_expanded_tensor_has_few_distinct_elements() -> None:
    """The gradient of a sum is one number seen B*d times."""
    trace = symbolic("linear", "sgd")
    expanded = next(op for op in ops(trace, "backward") if op.name == "aten.expand.default")

    assert (("B", "d"), 1) == (expanded.outputs[0].shape, expanded.outputs[0].distinct)


def test_a_trace_is_of_no_particular_sizes() -> None:
    """The same trace at other values of the dimensions, as long as they have the same order."""
    one, other = graph("nested"), calc.trace(MODELS["nested"], {"B": 29, "d": 10**6}, cache=False)

    assert one.traces == other.traces
    assert {"B": 29, "d": 10**6} == {dim.name: dim.value for dim in other.dims}


@pytest.mark.parametrize("name", [pytest.param("stack", marks=pytest.mark.slow), "attention"])
def test_a_trace_is_the_same_twice(name: str) -> None:
    """To the byte, storages and all."""
    assert serialize.dumps(graph(name)) == serialize.dumps(calc.trace(MODELS[name], cache=False))


# -- storages --------------------------------------------------------------------------------------------------------------


def live(trace: StepTrace, events: int, read: Callable[[Any], Any]) -> Any:
    return sum((e.change * read(trace.storages[e.storage].nbytes) for e in trace.events[:events]), start=read(0))


def reader(graph_: Graph, trace: StepTrace) -> Callable[[Any], Any]:
    return Algebra(graph_.symbols, [str(s.nbytes) for s in trace.storages]).parse


@pytest.mark.parametrize(
    ("name", "optimizer"),
    few([*((name, "adamw") for name in MODELS), *(("linear", o) for o in ("sgd", "momentum", "adagrad", "rmsprop", "adam", "spec"))], 4),
)
def test_live_bytes_at_the_end_of_a_step_equal_those_at_its_start(name: str, optimizer: str) -> None:
    """What a step takes it gives back, at all sizes; the first keeps the optimizer's state and nothing else.

    The loss of a step is dropped after its window, so it is still live at its end: 4 bytes.
    """
    traced = graph(name, optimizer)
    for trace in (*traced.traces, *traced.certificates):
        read = reader(traced, trace)
        (first, after_first), (start, end) = trace.windows
        born_in_first = {e.storage for e in trace.events[first:after_first] if e.change > 0}
        state = {t.storage for _, _, t in trace.state} & born_in_first
        total = sum((read(trace.storages[i].nbytes) for i in state), start=read(0))

        assert live(trace, after_first, read) - live(trace, first, read) == total + read(4)
        assert live(trace, end, read) - live(trace, start, read) == read(4)


@pytest.mark.parametrize("name", few(MODELS, 5))
def test_a_storage_is_allocated_once_and_freed_at_most_once_and_later(name: str) -> None:
    """Windows bound the events of their steps, in order."""
    trace = symbolic(name)
    changes: dict[int, list[int]] = {}
    for event in trace.events:
        changes.setdefault(event.storage, []).append(event.change)

    assert set(changes) == set(range(len(trace.storages)))
    assert all(graph_ in ([1], [1, -1]) for graph_ in changes.values())
    assert [s.index for s in trace.storages] == list(range(len(trace.storages)))
    assert {s.role for s in trace.storages} <= set(ROLES)
    (a, b), (c, d) = trace.windows
    assert 0 < a < b <= c < d <= len(trace.events)
    assert [e.op for e in trace.events] == sorted(e.op for e in trace.events)


def test_parameters_and_inputs_are_alive_before_the_first_step() -> None:
    """And stay."""
    trace = symbolic("tied")
    start = trace.windows[0][0]
    roles = {trace.storages[e.storage].role for e in trace.events[:start]}

    assert roles == {"parameter", "input"}
    assert trace.events
    assert all(e.change > 0 or trace.storages[e.storage].role not in roles for e in trace.events)


def test_a_view_shares_the_storage_of_its_base() -> None:
    """The transposed weight that a linear layer multiplies with is the weight."""
    trace = symbolic("linear")
    weight = dict(trace.parameters)["weight"].storage
    product = next(op for op in ops(trace, "forward") if op.name == "aten.addmm.default")

    assert dict(product.args)["mat2"].storage == weight


def test_tied_weights_are_one_parameter_and_one_storage() -> None:
    """V*d elements, V*d gradients, one state."""
    traced = graph("tied")
    trace = traced.traces[0]

    assert ["embed.weight"] == [name for name, _ in trace.parameters]
    assert ["embed.weight"] == [name for name, _ in trace.gradients]
    assert 1 == [s.role for s in trace.storages].count("parameter")
    result = calc.derive(traced)
    assert [result[q].at(V=11, d=7) for q in ("parameters", "gradients.bytes")] == [77, 4 * 77]


def test_frozen_parameters_have_neither_gradient_nor_state() -> None:
    """d² + d frozen, 5d + 5 trained: at d = 7, 56 + 40 elements, 160 bytes of gradients, 2*160 + 2*4 of AdamW's state."""

    traced = graph("frozen")
    result = calc.derive(traced)

    assert ["1.weight", "1.bias"] == [name for name, _ in traced.traces[0].gradients]
    assert {"1.weight", "1.bias"} == {name for name, _, _ in traced.traces[0].state}
    assert [56 + 40, 4 * 40, 2 * 160 + 2 * 4] == [result[q].value for q in ("parameters", "gradients.bytes", "optimizer_state.bytes")]
    # the frozen layer's products: 2*3*7*7 forward, none backward; the other's 2*3*7*5 forward and, as weight gradient, backward
    assert [294 + 210, 210] == [result[f"flops.{phase}.matmul"].value for phase in ("forward", "backward")]


def test_a_parameter_that_no_gradient_reaches_has_none() -> None:
    """It is there, and trained by nobody."""
    traced = graph("unused")
    result = calc.derive(traced)

    assert ["w"] == [name for name, _ in traced.traces[0].gradients]
    assert [7 + 49, 4 * 7] == [result[q].value for q in ("parameters", "gradients.bytes")]


def test_buffers_are_roles_of_their_own_and_a_checkpoint_holds_those_of_the_state_dict() -> None:
    """d² + d weights and the d saved ones, 4 bytes each, and 8 for the iteration: 4 (49 + 7 + 7) + 8 = 260."""
    traced = graph("buffers", "sgd")
    trace = traced.traces[0]
    buffers = {s.name: s.nbytes for s in trace.storages if s.role == "buffer"}

    assert set(buffers) == {"kept", "left"}
    assert buffers["kept"] == "4*d"
    assert calc.derive(traced)["checkpoint.bytes"].value == 4 * (49 + 7 + 7) + 8


def test_storages_of_gradients_and_state_are_named_by_their_parameter() -> None:
    """AdamW keeps two moments for each; a second step makes new gradients."""
    trace = symbolic("linear")
    named = [(s.role, s.name) for s in trace.storages]

    assert named.count(("gradient", "weight")) == 2
    assert named.count(("gradient", "bias")) == 2
    assert named.count(("optimizer state", "weight")) >= 2
    assert {("weight", "step"), ("weight", "exp_avg"), ("weight", "exp_avg_sq")} == {(n, k) for n, k, _ in trace.state if n == "weight"}


def test_a_mean_squared_error_keeps_the_buffer_it_was_summed_in() -> None:
    """Its scalar is the first element of B numbers: 4*B bytes, as a real one on CPU."""
    trace = first_trace(
        spec(lambda n: nn.Linear(n.d, 1), loss=lambda module, x: nn.functional.mse_loss(module(x), torch.zeros_like(x[:, :1])))
    )
    loss = next(op for op in ops(trace, "forward") if op.name == "aten.mse_loss.default")

    assert loss.outputs[0].shape == ()
    assert trace.storages[loss.outputs[0].storage].nbytes == "4*B"


# -- dtypes, saved tensors, calls -------------------------------------------------------------------------------------------


def test_dtypes_of_tensors_are_in_the_trace() -> None:
    """Token ids are 8-byte integers, weights are not."""
    trace = symbolic("tied")
    lookup = next(op for op in ops(trace, "forward") if op.name == "aten.embedding.default")
    args = dict(lookup.args)

    assert ("float32", "int64") == (args["weight"].dtype, args["indices"].dtype)
    assert "8*B" in {s.nbytes for s in trace.storages if s.role == "input"}


def test_saved_tensors_are_those_saved_for_backward_when_the_forward_returns() -> None:
    """tanh keeps its result, a linear layer its input and (to reach the layer below) its weight; the sum keeps nothing."""
    trace = symbolic("stack")
    held = [(s.module_path, s.op) for s in trace.saved]
    L = trace.sizes["L"]

    assert held.count(("layers.0", "aten.addmm.default")) == 1
    assert all(held.count((f"layers.{i}", "aten.addmm.default")) == 2 for i in range(1, L))
    assert held.count(("(model)", "aten.tanh.default")) == L
    assert len(held) == 1 + 2 * (L - 1) + L


@pytest.mark.parametrize("attention_option", ["fused", "math"])
def test_a_declared_causal_mask_is_noted_before_the_call_is_decomposed(attention_option: str) -> None:
    """Its operators, fused or not, all point to the call."""
    trace = symbolic("attention", attention=attention_option)
    products = [op for op in ops(trace, "forward") if "flash_attention" in op.name or op.name == "aten.bmm.default"]

    assert trace.calls
    assert all((c.function, c.causal, c.query, c.key) == ("scaled_dot_product_attention", True, "T", "T") for c in trace.calls)
    assert len(products) == (1 if attention_option == "fused" else 2)
    assert all(op.call is not None for op in products)


def test_fused_attention_is_one_operator_and_math_attention_is_products() -> None:
    """As torch dispatches them on CPU."""

    def names(option: str) -> set[str]:
        return {op.name for op in symbolic("attention", attention=option).ops}

    flash = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert flash in names("fused")
    assert flash not in names("math")
    assert "aten.bmm.default" not in names("fused")


def test_the_step_runs_in_training_mode() -> None:
    """Dropout draws its noise."""
    trace = symbolic("dropout")

    assert {"aten.bernoulli_.float", "aten.native_dropout.default"} & {op.name for op in ops(trace, "forward")}


def test_a_layer_norm_of_a_symbolic_width_is_written_as_users_do() -> None:
    """``LayerNorm(n.d)``, without a tuple: 2 d elements, and d for RMSNorm."""
    assert calc.derive(graph("norms"))["parameters"].text == "3*d"


def test_initializers_are_left_out_of_the_trace() -> None:
    """They ask sizes for numbers (the fan-in) and are no part of a step."""
    traced = graph("initialized")

    assert traced.loops == ()
    assert not any("normal" in op.name or "uniform" in op.name for op in traced.traces[0].ops)


def test_certificates_are_traced_at_plain_sizes_outside_the_derivation() -> None:
    """Every symbol is a number in them, depths are deeper ones, and no two are alike."""
    traced = graph("stack")

    assert len(traced.certificates) >= 2
    assert all(set(c.sizes) == set(traced.symbols) for c in traced.certificates)
    assert all(type(v) is int for c in traced.certificates for s in c.storages for v in (s.nbytes,))
    assert len([c for c in traced.certificates if c.sizes["L"] > max(r.sizes["L"] for r in traced.traces)]) >= 2
    assert len({tuple(sorted(c.sizes.items())) for c in traced.certificates}) == len(traced.certificates)


def test_an_optimizer_of_the_spec_is_used_when_requested() -> None:
    """Momentum alone: one state tensor a parameter."""
    assert {"momentum_buffer"} == {key for _, key, _ in symbolic("linear", "spec").state}


def test_operators_carry_their_arguments_by_schema_name() -> None:
    """So that a rule can read ``dim`` and ``keepdim``."""
    trace = first_trace(modules.function(lambda x: x.mean(dim=1, keepdim=True)))
    mean = next(op for op in ops(trace, "forward") if op.name == "aten.mean.dim")

    assert isinstance(mean, Op)
    assert (("dim", (1,)), ("keepdim", True)) == mean.args[1:]


def test_operators_in_place_say_what_they_change() -> None:
    """``relu_`` changes its argument and births no storage."""
    trace = first_trace(modules.function(lambda x: x.relu_()))
    relu = next(op for op in ops(trace, "forward") if op.name == "aten.relu_.default")

    assert relu.mutates == ("self",)
    assert relu.outputs[0].storage == dict(relu.args)["self"].storage


def test_a_warning_of_the_model_is_shown_once_with_the_names_of_sizes() -> None:
    """A derivation traces a step many times, with symbols that torch numbers."""

    def warned(x: torch.Tensor) -> torch.Tensor:
        warnings.warn(f"rows of {x.shape[1]} elements", stacklevel=1)
        return x

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        calc.derive(modules.function(warned), cache=False, optimizer="sgd")

    assert ["rows of d elements"] == [str(warning.message) for warning in shown]

