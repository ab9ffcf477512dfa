"""Several runs of one step have symbols in common, and what one of them worked out stands for the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

import calc
from calc.graph.basis import basis_of
from calc.graph.step import StepTrace
from calc.options import Options
from calc.spec import Spec
from calc.symbolic.exact import evaluate_text
from calc.trace.hints import HintRules, hints
from calc.trace.kernels.result_cache import _faked
from calc.trace.step import TracedRun, trace_step
from calc.trace.symbolic_sizes import SizeEnv
from calc.trace.tracing import StepSizes


def _run(spec: Spec, depth: int, like: TracedRun | None = None) -> TracedRun:
    basis = basis_of(spec.dimensions, {})
    repeats = None if like is None else like.repeats
    return trace_step(spec, StepSizes(basis, hints(basis, spec.sizes()), {"L": depth}), Options(), like=repeats)


def _evaluated_guards(run: TracedRun) -> set[tuple[str, bool]]:
    return {(c.expr, c.outcome) for c in run.guards}


def _at(trace: StepTrace, spec: Spec) -> StepTrace:
    """The trace with each storage's bytes as a number: texts may say the same polynomial in two ways."""
    sizes = hints(basis_of(spec.dimensions, {}), spec.sizes(), HintRules(hint_set=2))
    return replace(trace, storages=tuple(replace(s, nbytes=evaluate_text(str(s.nbytes), sizes)) for s in trace.storages))


@pytest.mark.parametrize("name", ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mixtral", "vit-b"))])
def test_cached_results_of_an_earlier_run_change_nothing_in_a_trace(name: str) -> None:
    """Operators, storages, lifetimes and every guard on sizes."""
    spec = calc.load(name)
    alone, after = _run(spec, 4), _run(spec, 4, like=_run(spec, 3))

    assert _at(after.trace, spec) == _at(alone.trace, spec)
    assert _evaluated_guards(after) == _evaluated_guards(alone)
    assert after.constant_reads == alone.constant_reads


@pytest.mark.slow
def test_a_guard_that_is_not_evaluated_again_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = calc.load("mixtral")
    alone = _run(spec, 4)
    monkeypatch.setattr(SizeEnv, "add_answers", lambda self, evaluations: None)

    assert _evaluated_guards(_run(spec, 4, like=_run(spec, 3))) < _evaluated_guards(alone)


def test_runs_of_other_symbols_share_nothing() -> None:
    """A Cruncher has D, a multilayer perceptron d, f and K."""
    first = _run(calc.load("cruncher"), 3)
    other = _run(calc.load("mlp"), 3, like=first)

    assert other.repeats is not first.repeats
    assert other.trace == _run(calc.load("mlp"), 3).trace


def test_a_fake_tensor_is_the_same_however_it_is_made() -> None:
    """As torch's constructor leaves it: the first of a run, and those after it."""
    with FakeTensorMode() as mode, in_kernel_invocation_manager(mode):
        made = [torch.empty(5, 3, device="meta") for _ in range(3)]
        first, second = _faked(made[0], mode), _faked(made[1], mode)
        theirs = FakeTensor(mode, made[2], torch.device("cpu"))

    assert first.__dict__ == second.__dict__ == theirs.__dict__
    for ours in (first, second):
        assert type(ours) is FakeTensor
        assert (ours.shape, ours.stride(), ours.dtype, ours.device) == (theirs.shape, theirs.stride(), theirs.dtype, torch.device("cpu"))
        assert torch._C._dispatch_keys(ours) == torch._C._dispatch_keys(theirs)
        assert (ours.requires_grad, ours.is_leaf, ours._version) == (theirs.requires_grad, theirs.is_leaf, theirs._version)


def test_facts_about_one_fake_tensor_do_not_pass_to_the_next() -> None:
    with FakeTensorMode() as mode, in_kernel_invocation_manager(mode):
        first, second = (_faked(torch.empty(5, device="meta"), mode) for _ in range(2))
    first.napkin_constant = 7

    assert not hasattr(second, "napkin_constant")
