"""The history of a ``TracePlan``: what was refined, in which order, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.errors import CertificateError, Failure, NapkinError, OtherPathError, SizesError, SpecializationError, TraceError
from calc.graph.plan import DivisorSearch, Inferred, Refusal, Shallow, TracePlan, TripCount
from calc.options import Options
from calc.pipeline import pipeline
from calc.pipeline.divisibility import first_search, with_next_divisor
from calc.pipeline.refinements import REFINEMENTS, divisor, specialized_size, specialized_too_soon, with_quotients
from calc.spec import Spec

FORWARD = Callable[[Tensor, Any], Tensor]


class Runs(nn.Module):
    """A linear layer, and then ``what`` is done with its result and the sizes."""

    def __init__(self, n: Any, what: FORWARD) -> None:
        super().__init__()
        self.n, self.what, self.mix = n, what, nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        return self.what(self.mix(x), self.n)


def spec(what: FORWARD, **dims: int) -> Spec:
    sizes = {"B": 2, "d": 12, **dims}
    return Spec("plan", sizes, lambda n: Runs(n, what), lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())


def history(model: Spec) -> list[TracePlan]:
    run = pipeline.Run(Options(optimizer="sgd"), cache=False, progress=lambda _: None)
    return pipeline.traced(model, {}, run).plan.history


def repeated(y: Tensor, n: Any) -> Tensor:
    for _ in range(n.L):
        y = y.relu()
    return y


def in_heads(y: Tensor, n: Any) -> Tensor:
    return y.view(-1, n.h, n.d // n.h).softmax(-1)


def in_groups(y: Tensor, _: Any) -> Tensor:
    return torch.nn.functional.group_norm(y[..., None], 4)  # its error has the shape, which torch reads as numbers


def chosen(y: Tensor, n: Any) -> Tensor:
    return y[y > 0.1]


def spelled(y: Tensor, n: Any) -> Tensor:
    if not str(n.L).isdigit():
        raise ValueError("no number")
    return y * n.L


# -- histories of models -----------------------------------------------------------------------------------------------------------


def test_a_step_that_is_traced_at_once_has_a_history_of_one_plan() -> None:
    [only] = history(spec(lambda y, n: y.relu()))

    assert (only.reason, only.refusal, only.attempt, only.specialized) == ("", None, 0, {})


@pytest.mark.parametrize(
    ("what", "dims", "reasons"),
    [
        (repeated, {"L": 5}, ["L is read as a number at"]),
        (in_heads, {"h": 3}, ["assuming d to be a multiple of h"]),
        (in_groups, {}, ["assuming d to be a multiple of 4"]),
        (chosen, {}, ["data-dependent (unbacked) size at"]),
    ],
)
def test_each_plan_says_what_is_new_in_it(what: FORWARD, dims: dict[str, int], reasons: list[str]) -> None:
    """A trip count, a divisor, a data-dependent size."""
    first, *plans = history(spec(what, **dims))

    assert [plan.reason[: len(reason)] for plan, reason in zip(plans, reasons, strict=True)] == reasons
    assert [plan.before for plan in plans] == [first, *plans[:-1]]


def with_a_table_of_heads(y: Tensor, n: Any) -> Tensor:
    return in_heads(y, n) + torch.linspace(0, 1, 3)[:, None]


def of_a_fixed_square(y: Tensor, n: Any) -> Tensor:
    image = y[:, :1, None] + torch.ones(n.R, n.R)
    return torch.nn.functional.linear(image.flatten(1), torch.ones(5, 49))


@pytest.mark.parametrize(
    ("what", "dims", "reasons", "specialized"),
    [
        (with_a_table_of_heads, {"h": 3}, ["assuming d to be a multiple of h", "the step needs h == 3: specializing h"], {"h"}),
        (of_a_fixed_square, {"R": 7}, ["the step needs R**2 == 49: specializing R"], {"R"}),
    ],
)
def test_a_size_that_has_to_be_a_number_is_specialized_alone_and_at_once(
    what: FORWARD, dims: dict[str, int], reasons: list[str], specialized: set[str]
) -> None:
    """No divisor is tried, and what is inferred before stays: d, a multiple of the heads, has a symbol."""
    _, *plans = history(spec(what, **dims))

    assert reasons == [plan.reason for plan in plans]
    assert specialized == {*plans[-1].specialized}


def wide_kernel(y: Tensor, n: Any) -> Tensor:
    return torch.nn.functional.conv1d(y.t()[None, :1], torch.ones(1, 1, 127), stride=64)


def test_a_step_that_needs_more_than_it_is_traced_at_is_traced_near_the_requested_sizes() -> None:
    """No multiple of the length is assumed: a kernel of 127 needs 127 samples, whatever they divide."""
    _, *plans = history(spec(wide_kernel, B=1601))

    assert [plan.reason for plan in plans] == ["the step may need larger sizes: tracing near the requested ones"]
    assert plans[-1].spec.dimensions["B"].multiple_of is None


def test_a_step_that_fails_near_the_requested_sizes_too_is_traced_at_the_usual_ones() -> None:
    """Larger sizes are tried once; small constants are computed at the usual ones."""
    model = replace(spec(spelled, L=997), may_specialize=(("L",),))
    _, near, usual, *_, last = history(model)

    assert near.near is not None
    assert (usual.near, usual.reason) == (None, "larger sizes do not help: tracing at the usual ones")
    assert {"L"} == {*last.specialized}


def test_a_number_that_the_requested_sizes_are_not_specializes_nothing() -> None:
    """The step fails at exactly the requested sizes, which is its own error."""
    with pytest.raises(SizesError, match=r"The size of tensor a \(4\) must match the size of tensor b \(3\)"):
        history(spec(with_a_table_of_heads, h=4))


def test_no_further_divisor_is_tried_where_values_decide_what_the_step_does() -> None:
    """Once the failing line has the divisor that it asks for, other sizes are another path whatever they divide."""
    given = spec(in_heads, h=3)
    first = SizesError("(d)//h leaves a remainder")
    start = TracePlan(given, given.sizes(), Options())
    trying = with_next_divisor(start, first_search(given, given.sizes(), first), given.sizes(), None)
    assert trying is not None
    assert trying.reason == "assuming d to be a multiple of h"
    after = divisor(replace(trying, before=start, refusal=Refusal(first)), Refusal(OtherPathError("a value", divides=False)))

    assert isinstance(after, TracePlan)
    assert after.reason == "no divisor helps: sizes may be specialized"


def triangular(y: Tensor, n: Any) -> Tensor:
    for i in range(n.L):
        for _ in range(i):
            y = y.relu()
    return y


def test_a_refusal_says_whether_the_step_was_traced() -> None:
    """L(L−1)/2 is no line through two numbers of iterations, as a certificate at a third shows; a size that has to be a number shows in the
    trace."""
    deeper = history(replace(spec(triangular, L=5), trip_counts=("L",)))
    specialized = history(replace(spec(spelled, L=4), may_specialize=(("d",), ("L",))))

    assert [True] == [plan.refusal.of_certificate for plan in deeper if plan.refusal]
    assert [False, False] == [plan.refusal.of_certificate for plan in specialized if plan.refusal]


def test_a_size_without_closed_form_is_specialized_where_the_spec_lets_it() -> None:
    """First d, which the spec names first; once L is a number, d is tried as a symbol again."""
    plans = history(replace(spec(spelled, L=4), may_specialize=(("d",), ("L",))))

    assert [plan.reason for plan in plans[1:]] == [f"no closed form in {name}: specializing it" for name in ("d", "L")]
    assert [[*plan.specialized] for plan in plans] == [[], ["d"], ["d", "L"]]
    assert specialized_too_soon(plans[-1]) == [["d"]]


def test_a_size_that_the_failing_line_divides_is_a_multiple_before_any_is_specialized() -> None:
    """The heads divide the width, which the spec would let be a number."""
    plans = history(replace(spec(in_heads, h=3), may_specialize=(("d",), ("h",))))

    assert [plan.reason for plan in plans[1:]] == ["assuming d to be a multiple of h"]
    assert plans[-1].specialized == {}


def scaled_heads(y: Tensor, n: Any) -> Tensor:
    return (y * (1 / (n.d // n.h))).view(-1, n.h, n.d // n.h).softmax(-1)


def test_a_quotient_that_is_zero_at_the_sizes_of_the_trace_specializes_nothing() -> None:
    """Six heads in three groups are more than a width of twelve where each symbol is a prime; in a message they are g times h/g."""
    grouped = replace(spec(scaled_heads, g=3), dims={"B": 2, "d": 12, "h": Dim(6, multiple_of="g"), "g": 3}, may_specialize=(("d",),))
    plans = history(grouped)

    assert [plan.reason for plan in plans[1:]] == [
        "a quotient of sizes is zero at those of the trace: tracing at others",
        "assuming d to be a multiple of h",
    ]
    assert not plans[-1].specialized


def test_a_trip_count_is_in_the_plan_with_its_line() -> None:
    plan = history(spec(repeated, L=5))[-1]

    assert [*plan.trip_counts] == ["L"]
    assert plan.trip_counts["L"].startswith("test_refinements.py:")


# -- single refinements ------------------------------------------------------------------------------------------------------------

PLAN = TracePlan(spec(repeated), {}, Options())


def _refined_by(error: NapkinError, evidence: Any = None, plan: TracePlan = PLAN) -> TracePlan | Refusal | None:
    refusal = Refusal(error, evidence)
    return next((better for refine in REFINEMENTS if (better := refine(plan, refusal)) is not None), None)


def test_evidence_takes_precedence_over_errors() -> None:
    """A size that is read as a number is a trip count; a failed certificate is answered by more iterations; what is inferred is used."""
    pin, other = SpecializationError("L", "a line", "pinned"), spec(repeated, L=9)
    read = _refined_by(pin, TripCount("L", "a line", "L is read"))
    deeper = _refined_by(CertificateError("memory.peak", "wrong"), Shallow("memory.peak", 2))
    inferred = _refined_by(pin, Inferred(other, "more is known"))

    assert isinstance(read, TracePlan)
    assert read.trip_counts == {"L": "a line"}
    assert isinstance(deeper, TracePlan)
    assert (deeper.attempt, deeper.failed) == (2, ("memory.peak",))
    assert isinstance(inferred, TracePlan)
    assert (inferred.spec, inferred.specialized) == (other, {})


def test_quantities_without_closed_form_become_unknown_but_for_parameters() -> None:
    unknown = _refined_by(CertificateError("memory.peak", "wrong"))

    assert isinstance(unknown, TracePlan)
    assert unknown.spec.unknown == {"memory.peak": "wrong"}
    assert _refined_by(CertificateError("parameters", "wrong")) is None
    assert _refined_by(CertificateError("memory.peak", "wrong"), plan=unknown) is None


@pytest.mark.parametrize(("quantity", "specialized"), [("memory.peak", False), ("parameters", True)])
def test_a_peak_in_a_number_of_iterations_that_data_decide_makes_no_size_a_number(quantity: str, specialized: bool) -> None:
    counted = replace(PLAN.spec, dims={**PLAN.spec.dims, "n1": Dim(3, unbacked_at="m.py:3")}, may_specialize=(("d",),))
    error = SpecializationError("n1", "m.py:3", "no polynomial")
    error.failures = {quantity: "wrong"}

    assert specialized is (specialized_size(replace(PLAN, spec=counted), Refusal(error)) is not None)


def test_what_failed_at_one_line_with_and_without_a_size_was_specialized_too_soon() -> None:
    """Both errors name one line, so B is not at fault; the third names another."""
    plan = PLAN
    for name, line in (("B", "m.py:3"), ("d", "m.py:3"), ("L", "m.py:4")):
        refusal = Refusal(SizesError(Failure("raised ValueError: no", where=line)))
        plan = replace(plan.specializing({**plan.specialized, name: "why"}, ""), before=plan, refusal=refusal)

    assert specialized_too_soon(plan) == [["B"]]


class Trials:
    """Stands for traces and certificates: traces work where ``traces`` says so, certificates where B is a number."""

    def __init__(self, traces: Callable[[TracePlan], bool]) -> None:
        self.traces = traces
        self.certified: list[tuple[str, ...]] = []

    def traced(self, plan: TracePlan) -> Any:
        return "graph" if self.traces(plan) else Refusal(TraceError("no trace"))

    def __call__(self, plan: TracePlan) -> Any:
        self.certified.append((*plan.specialized,))
        return ("graph", "closed forms") if "B" in plan.specialized else Refusal(TraceError("no closed form"))


@pytest.mark.parametrize(
    ("traces", "certified"),
    [(lambda plan: True, [("d", "L"), ("B", "d", "L")]), (lambda plan: "B" in plan.specialized, [("B", "d", "L")])],
    ids=["its certificates fail", "it cannot be traced"],
)
def test_sizes_at_which_a_plan_failed_are_not_tried_once_more(traces: Callable[[TracePlan], bool], certified: object) -> None:
    """B may have been specialized too soon. The plan with B as a symbol is certified once if it can be traced, else never."""
    model, plan = spec(lambda y, n: y, L=3), PLAN
    plan = replace(plan, spec=model)
    for name, line in (("B", "m.py:3"), ("d", "m.py:3"), ("L", "m.py:4")):
        refusal = Refusal(SizesError(Failure("raised ValueError: no", where=line)))
        plan = replace(plan.specializing({**plan.specialized, name: "why"}, ""), before=plan, refusal=refusal)
    trials: Any = Trials(traces)

    made = pipeline._general(plan, model, pipeline.Run(cache=False), trials)

    assert ("graph", "closed forms") == made
    assert certified == trials.certified


def heads_as_text(y: Tensor, n: Any) -> Tensor:
    """Fails where d, and with it the width of a head, is no number; f plays no part in it."""
    if not str(n.d).isdigit():
        raise TypeError("no number")
    return (y.view(-1, n.h, n.d // n.h) @ torch.ones(n.d // n.h, n.f)).relu()


def test_of_sizes_that_were_specialized_together_one_that_nothing_hangs_on_is_a_symbol_again() -> None:
    """The error names none of them, so the spec's whole set is taken; h, which d is a multiple of, is not tried alone."""
    sizes = {"B": 2, "h": 3, "d": Dim(12, multiple_of="h"), "f": 5}
    steps: list[str] = []
    run = pipeline.Run(Options(optimizer="sgd"), cache=False, progress=steps.append)
    traced = pipeline.traced(replace(spec(heads_as_text), dims=sizes, may_specialize=(("d", "h", "f"),)), {}, run)

    assert ["d", "h"] == [*traced.graph.specialized]
    assert ["trying d as a symbol again", "trying f as a symbol again"] == [step for step in steps if step.startswith("trying")]
    assert "no closed form in d, h, f: specializing them" in steps


def of_twelve_heads(y: Tensor, n: Any) -> Tensor:
    """Fails where g, which has to divide 12, is no number; the width f of a head is compared at the same line."""
    keys = torch.ones(n.B, n.g, 1, n.f)
    return nn.functional.scaled_dot_product_attention(y.sum() * torch.ones(n.B, 12, 1, n.f), keys, keys, enable_gqa=True)


def test_the_size_in_the_comparison_that_a_step_fails_at_is_specialized_first() -> None:
    """Not d, which the spec names first, nor f: what divides 12 is g."""
    plans = history(replace(spec(of_twelve_heads, g=3, f=5), may_specialize=(("d",), ("f", "g"))))

    assert [plan.reason for plan in plans[1:]] == ["no closed form in g: specializing it"]
    assert [*plans[-1].specialized] == ["g"]


def as_long_as_six_f(y: Tensor, n: Any) -> Tensor:
    """Fails where h, which has to be 6, is no number; f is in the same comparison, and cancels."""
    return y.sum() * (torch.ones(n.f * n.h) + torch.ones(6 * n.f))


def test_of_two_sizes_in_one_comparison_the_one_that_is_not_at_fault_is_a_symbol_again() -> None:
    """h is not tried after f: with both as symbols the step has failed."""
    steps: list[str] = []
    run = pipeline.Run(Options(optimizer="sgd"), cache=False, progress=steps.append)
    traced = pipeline.traced(replace(spec(as_long_as_six_f, f=5, h=6), may_specialize=(("d",), ("f", "h"))), {}, run)

    assert ["h"] == [*traced.graph.specialized]
    assert ["trying f as a symbol again"] == [step for step in steps if step.startswith("trying")]


def test_what_divides_a_size_is_a_symbol_again_after_it() -> None:
    """g divides f, and both cancel: f comes first, then h in vain, then g."""
    steps: list[str] = []
    run = pipeline.Run(Options(optimizer="sgd"), cache=False, progress=steps.append)
    sizes = {"B": 2, "d": 12, "g": 5, "f": Dim(10, multiple_of="g"), "h": 6}
    model = replace(spec(as_long_as_six_f), dims=sizes, may_specialize=(("d",), ("g", "f", "h")))
    traced = pipeline.traced(model, {}, run)

    assert ["h"] == [*traced.graph.specialized]
    assert ["f", "h", "g"] == [step.split()[1] for step in steps if step.startswith("trying")]


def test_only_the_graph_that_is_kept_is_certified() -> None:
    """Which of d and f may be symbols is tried on traces alone; the two certificates, one of them at the sizes, follow the last trial."""
    sizes = {"B": 2, "h": 3, "d": Dim(12, multiple_of="h"), "f": 5}
    steps: list[str] = []
    run = pipeline.Run(Options(optimizer="sgd"), cache=False, progress=steps.append)
    pipeline.traced(replace(spec(heads_as_text), dims=sizes, may_specialize=(("d", "h", "f"),)), {}, run)

    trials = [i for i, step in enumerate(steps) if step.startswith("trying")]
    certificates = [i for i, step in enumerate(steps) if step.startswith("tracing a certificate")]
    assert trials[-1] < certificates[0]


def test_a_peak_between_iterations_specializes_the_trip_count_and_no_width() -> None:
    """Which iteration needs most has no closed form in L; widths, which the spec names first, are not at fault."""
    layers = replace(spec(repeated, L=9), trip_counts=("L",), may_specialize=(("d",), ("L",)))
    first = _refined_by(CertificateError("memory.peak", "between"), plan=replace(PLAN, spec=layers, given=layers))

    assert isinstance(first, TracePlan)
    assert [*first.specialized] == ["L"]


def test_a_peak_between_iterations_of_a_loop_that_was_read_makes_no_size_a_number() -> None:
    """The peaks alone are unknown then: everything else has its closed form in the trip count."""
    looped = replace(spec(repeated, L=9), may_specialize=(("d",), ("L",)))
    following = _refined_by(CertificateError("memory.peak", "between"), plan=replace(PLAN, spec=looped, given=looped))

    assert isinstance(following, TracePlan)
    assert ({}, {"memory.peak": "between"}) == (following.specialized, following.spec.unknown)


def test_a_peak_that_differs_from_a_trace_specializes_the_trip_count_and_no_width() -> None:
    """Where peaks alone are wrong, which iteration needs most is what differs; where saved bytes are wrong as well, it may be anything."""
    layers = replace(spec(repeated, L=9), trip_counts=("L",), may_specialize=(("d",), ("L",)))

    def specialized(**further: str) -> list[str]:
        error = CertificateError("memory.peak", "higher", {"B": 3, "d": 5, "L": 7}, further)
        refined_plan = _refined_by(error, plan=replace(PLAN, spec=layers, given=layers))
        assert isinstance(refined_plan, TracePlan)
        return [*refined_plan.specialized]

    assert specialized() == ["L"]
    assert specialized(**{"memory.peak.first_step": "higher"}) == ["L"]
    assert specialized(**{"activations.bytes": "more"}) == ["d"]


def test_a_quotient_that_a_step_fails_at_is_a_number_with_what_it_divides() -> None:
    """A head of d/h is a number only where d is one."""
    dims = {"d": Dim(12, multiple_of="h"), "h": Dim(3), "k": Dim("d/h", tied=True)}
    heads = replace(PLAN.spec, dims=dims, may_specialize=(("k", "d"),))
    first = _refined_by(SizesError("plan raised ValueError: no").of_causes(["k"]), plan=replace(PLAN, spec=heads, given=heads))

    assert isinstance(first, TracePlan)
    assert [*first.specialized] == ["d", "h", "k"]


def test_a_specialized_number_of_heads_leaves_the_width_a_symbol() -> None:
    """12 heads of k are a width of 12·k; a width that is a number makes its heads numbers, and k with them."""
    heads = replace(PLAN.spec, dims={"d": Dim(12, multiple_of="h"), "h": Dim(3), "k": Dim("d/h", tied=True)})

    assert with_quotients(heads, ["h"]) == ["h"]
    assert with_quotients(heads, ["d"]) == ["d", "h", "k"]


# -- the search for divisors -------------------------------------------------------------------------------------------------------


def _raised(where: str, message: str) -> SizesError:
    return SizesError(Failure(f"raised ValueError at {where}: {message}", where=where, about=message))


def _searched(*errors: NapkinError | None) -> list[str]:
    """The reasons of the plans that the search gives, as each is refused with one of ``errors``."""
    sizes, model = {"B": 2, "d": 12, "h": 3}, spec(in_heads, h=3)
    plan = replace(PLAN, spec=model, given=model)
    search: DivisorSearch | None = first_search(model, sizes, _raised("m.py:3", "cannot split d among h"))
    reasons = []
    for error in errors:
        following = with_next_divisor(plan, search, sizes, error) if search else None
        if following is None:
            break
        reasons.append(following.reason)
        plan, search = following, following.search
    return reasons


def test_the_search_goes_on_where_a_divisor_does_not_help_and_deeper_where_the_step_fails_elsewhere() -> None:
    same = _raised("m.py:3", "cannot split d among h")
    elsewhere = _raised("m.py:9", "d is odd")

    assert _searched(None, same, same) == [f"assuming {what}" for what in ("d to be a multiple of h", "d to be a multiple of 2", *_THIRD)]
    assert _searched(None, elsewhere) == ["assuming d to be a multiple of h", "assuming d/h to be a multiple of 2"]


_THIRD = ("d to be a multiple of 4",)
