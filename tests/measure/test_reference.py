"""The reference counter against arithmetic done by hand, at distinct prime sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from calc.measure import decomposition
from calc.measure.reference import ReferenceCounter

FP32, INT64 = 4, 8


def count(run: Callable[[], Any]) -> tuple[int, int]:
    """(elementwise FLOPs, bytes moved) of what ``run`` does, all of which must be countable."""
    with torch.no_grad(), ReferenceCounter() as counter:
        run()

    assert {} == dict(counter.unknown)
    return counter.elementwise, counter.bytes_moved


def r(*shape: int) -> torch.Tensor:
    return torch.rand(shape)


# -- elementwise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        pytest.param(lambda: r(2, 3) + r(3), 2 * 3, id="one addition per result element, also broadcast"),
        pytest.param(lambda: torch.add(r(2, 3), r(3), alpha=0.5), 2 * 2 * 3, id="an alpha is one multiplication per element"),
        pytest.param(lambda: torch.add(r(2, 3), r(3), alpha=1.0), 2 * 3, id="an alpha of 1 is none"),
        pytest.param(lambda: r(2, 3).sigmoid(), 4 * 2 * 3, id="sigmoid: negate, exponential, add, divide"),
        pytest.param(lambda: F.softplus(r(2, 3)), 2 * 2 * 3, id="softplus: exponential, logarithm"),
        pytest.param(lambda: F.softplus(r(2, 3), 1.0), 2 * 2 * 3, id="a beta of 1 is no scaling"),
        pytest.param(lambda: F.softplus(r(2, 3), 2.0), 4 * 2 * 3, id="another one scales twice"),
        pytest.param(lambda: r(2, 3).relu(), 0, id="relu compares and selects"),
        pytest.param(lambda: r(2, 3).to(torch.float64), 0, id="a cast is 0"),
        pytest.param(lambda: F.pad(r(2, 3), (1, 2)), 0, id="a copy is 0"),
        pytest.param(lambda: r(7).cumsum(0), 6, id="a running sum of 7 is 6 additions"),
        pytest.param(lambda: r(2, 7).cumsum(1), 2 * 6, id="one per line"),
        pytest.param(lambda: r(2, 3, 5).sum(), 29, id="a sum of 30 is 29 additions"),
        pytest.param(lambda: r(2, 3, 5).sum(1), 10 * 2, id="10 sums of 3"),
        pytest.param(lambda: r(2, 3, 5).mean(1), 10 * 2 + 10, id="10 sums of 3 and 10 divisions"),
        pytest.param(lambda: r(2, 3, 5).amax(1), 10 * 2, id="a maximum is a reduction"),
        pytest.param(lambda: r(2, 3, 5).argmax(1), 0, id="its position is a comparison"),
        pytest.param(lambda: r(2, 5).softmax(1), 2 * (4 + 5 + 5 + 4 + 5), id="softmax: max, subtract, exponential, sum, divide"),
        pytest.param(lambda: r(2, 3) @ r(3, 5), 0, id="products are matmul FLOPs"),
        pytest.param(lambda: r(2, 3) @ r(3), 0, id="products with a vector too"),
        pytest.param(lambda: r(3) @ r(3), 0, id="and of two vectors"),
        pytest.param(lambda: torch.addmv(r(2), r(2, 3), r(3)), 2, id="plus a vector: one addition per result element"),
        pytest.param(lambda: torch.addmm(r(5), r(2, 3), r(3, 5)), 2 * 5, id="a bias is one addition per result element"),
        pytest.param(lambda: torch.addmm(r(5), r(2, 3), r(3, 5), beta=2, alpha=3), 10 + 5 + 10, id="scaled: product, bias, addition"),
        pytest.param(lambda: r(7, 5).index_add_(0, torch.tensor([1, 1, 3]), r(3, 5)), 15, id="one addition per source element"),
        pytest.param(lambda: r(2, 3).bernoulli_(0.5), 0, id="random numbers are 0"),
        pytest.param(lambda: r(2, 3).add_(r(3)), 2 * 3, id="in place as out of place"),
        pytest.param(lambda: torch.maximum(r(3), r(3), out=r(3)), 0, id="out= as without"),
    ],
)
def test_elementwise_is_the_arithmetic_of_the_reference(run: Callable[[], Any], flops: int) -> None:
    """One FLOP per result element of each arithmetic operation; a reduction of n is n - 1; everything else is 0."""
    assert flops == count(run)[0]


def test_fused_attention_is_counted_as_its_mathematics() -> None:
    """B·h = 6 heads, 5 queries, 7 keys: N = 210 scores in R = 30 rows; scale N, softmax 5 N - 2 R; backward 5 N - R."""
    q, k, v = (torch.rand(2, 3, n, 11, requires_grad=True) for n in (5, 7, 7))

    with ReferenceCounter() as forward:
        out = F.scaled_dot_product_attention(q, k, v)
    with ReferenceCounter() as backward:
        torch.autograd.grad(out, (q, k, v), torch.ones_like(out))

    assert 210 + 5 * 210 - 2 * 30 == forward.elementwise
    assert 5 * 210 - 30 == backward.elementwise


def test_math_attention_counts_each_operator_that_runs() -> None:
    """The same call under the math backend scales queries and keys instead of scores: 2·3·(5 + 7)·11 = 792."""
    q, k, v = (torch.rand(2, 3, n, 11) for n in (5, 7, 7))

    def attend() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            F.scaled_dot_product_attention(q, k, v)

    assert 792 + 5 * 210 - 2 * 30 == count(attend)[0]


# -- bytes moved ------------------------------------------------------------------------------------------------------------

X, ROW, ROWS, TABLE, IMAGE = r(2, 3, 5), r(5), r(3, 5), r(7, 5), r(2, 5, 7)
POSITIONS = torch.tensor([[1, 1, 3], [0, 6, 2]])


@pytest.mark.parametrize(
    ("run", "moved"),
    [
        pytest.param(lambda: X + ROW, (30 + 5 + 30) * FP32, id="reads both, writes the result"),
        pytest.param(lambda: X + ROW.expand(2, 3, 5), (30 + 5 + 30) * FP32, id="a dimension of stride 0 is read once"),
        pytest.param(lambda: X * 2, (30 + 30) * FP32, id="a number is not read"),
        pytest.param(lambda: X.clone().add_(ROW), (30 + 30) * FP32 + (30 + 5 + 30) * FP32, id="in place reads and writes"),
        pytest.param(lambda: X.view(6, 5).t()[1:].unbind(0), 0, id="views move nothing"),
        pytest.param(lambda: torch.empty(7), 0, id="empty writes nothing"),
        pytest.param(lambda: torch.zeros(7), 7 * FP32, id="zeros writes"),
        pytest.param(lambda: torch.ones_like(X), 30 * FP32, id="ones_like does not read"),
        pytest.param(lambda: torch.arange(7), 7 * INT64, id="arange writes"),
        pytest.param(lambda: X.zero_(), 30 * FP32, id="a fill only writes"),
        pytest.param(lambda: X.copy_(ROW), (5 + 30) * FP32, id="copy_ reads the source and writes"),
        pytest.param(lambda: X.double(), 30 * 4 + 30 * 8, id="a cast reads one size and writes another"),
        pytest.param(lambda: F.embedding(POSITIONS, TABLE), 30 * FP32 + 6 * INT64 + 30 * FP32, id="gathers one per result"),
        pytest.param(lambda: TABLE[POSITIONS], 30 * FP32 + 6 * INT64 + 30 * FP32, id="so does indexing"),
        pytest.param(
            lambda: TABLE.index_add_(0, POSITIONS[0], ROWS),
            15 * FP32 + 3 * INT64 + 15 * FP32 + 15 * FP32,
            id="scatters touch one per source element",
        ),
        pytest.param(lambda: X[0].t() @ ROWS, (15 + 15 + 25) * FP32, id="a product reads both, writes one"),
    ],
)
def test_bytes_moved_are_the_elements_addressed(run: Callable[[], Any], moved: int) -> None:
    """Distinct elements of every argument read and of every result written, times their size."""
    assert moved == count(run)[1]


def test_an_embedding_gradient_writes_the_whole_table() -> None:
    """30 gradient elements and 6 indices read, a (7, 5) table written: it starts at zero."""
    assert (30 + 35) * FP32 + 6 * INT64 == count(lambda: torch.ops.aten.embedding_dense_backward(X, POSITIONS, 7, -1, False))[1]


def test_batch_normalization_in_training_moves_its_running_statistics() -> None:
    """70 inputs, 4 vectors of 5 read; 70 results, 2 + 2 vectors of 5 written."""
    vectors = [r(5) for _ in range(4)]

    assert (70 + 20 + 70 + 10 + 10) * FP32 == count(lambda: torch.native_batch_norm(IMAGE, *vectors, True, 0.1, 1e-5))[1]


@pytest.mark.parametrize("run", [lambda x: F.silu(x), lambda x: F.logsigmoid(x)], ids=["silu", "log sigmoid"])
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="compares with the references of torch 2.13")
def test_a_gradient_counts_under_every_version_of_torch_what_torch_2_13_counts(
    run: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without what is taken in their place, the references of torch 2.13 give the same."""

    def backward() -> int:
        monkeypatch.setattr(decomposition, "_COUNTS", {})
        x = r(2, 3, 5).requires_grad_()
        y = run(x)
        with ReferenceCounter() as counter:
            torch.autograd.grad(y, x, r(2, 3, 5))
        assert {} == dict(counter.unknown)
        return counter.elementwise

    here = backward()
    monkeypatch.setattr(decomposition, "REPLACEMENTS", {})
    assert 0 < here == backward()


# -- being honest -----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_counted_is_named_and_not_added() -> None:
    """torch has no decomposition of an eigenvalue solver: it is unknown, not zero."""
    with ReferenceCounter() as counter:
        torch.linalg.eigvalsh(torch.eye(3))
        torch.linalg.eigvalsh(torch.eye(3))

    assert {"aten._linalg_eigh.default": 2} == dict(counter.unknown)


def test_outer_modes_do_not_see_the_decompositions() -> None:
    """The decompositions run apart: a FLOP counter around the counter counts the product, 2·2·3·5, and nothing twice."""
    with FlopCounterMode(display=False) as flops:
        count(lambda: torch.addmm(r(5), r(2, 3), r(3, 5)).softmax(1))

    assert 60 == flops.get_total_flops()


def test_counting_changes_no_result() -> None:
    """A step under the counter gives the gradients of the step without it."""
    x, w = r(2, 3), torch.rand(3, 5, requires_grad=True)

    (plain,) = torch.autograd.grad(F.gelu(x @ w).sum(), w)
    with ReferenceCounter():
        (counted,) = torch.autograd.grad(F.gelu(x @ w).sum(), w)

    assert torch.equal(plain, counted)
