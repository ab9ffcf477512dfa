"""Which contractions are products of two matrices, by einsum patterns: axes of the result have labels 0, 1, …, the others follow."""

from __future__ import annotations

import pytest

from reports.typeset.matmuls import MatrixProduct, matrix_product


def product(pattern: str) -> MatrixProduct | None:
    """Of an einsum pattern."""
    operands, _, result = pattern.partition("->")
    letters = list(dict.fromkeys([*result, *operands.replace(",", "")]))
    a, b = ([letters.index(letter) for letter in operand] for operand in operands.split(","))
    return matrix_product(a, b, len(result))


@pytest.mark.parametrize(
    ("pattern", "operands", "transposed"),
    [
        ("bd,df->bf", (0, 1), (False, False)),
        ("btd,fd->btf", (0, 1), (False, True)),  # X Wᵀ, for every row of B·T
        ("btd,btf->df", (0, 1), (True, False)),  # Xᵀ dY over the rows of B·T
        ("btd,btf->fd", (1, 0), (True, False)),
        ("bhts,bshk->bhtk", (0, 1), (False, False)),
        ("bguts,bsgk->bgutk", (0, 1), (False, False)),  # u queries for each key: (u·t, s) by (s, k)
        ("d,df->f", (0, 1), (True, False)),  # a vector is a column
        ("bd,d->b", (0, 1), (False, False)),
        ("d,d->", (0, 1), (True, False)),
    ],
)
def test_a_product_of_two_matrices(pattern: str, operands: tuple[int, int], transposed: tuple[bool, bool]) -> None:
    """One axis is summed over, or the axes of the rows together, and each matrix has one more."""
    actual = product(pattern)

    assert actual is not None
    assert (operands, transposed) == ((actual.left, actual.right), actual.transposed)


@pytest.mark.parametrize(
    "pattern",
    [
        "jd,jdm->jm",  # an expert's matrix for each row
        "bcxypq,cpq->bcxy",  # depthwise convolution
        "bcxypq,ocpq->boxy",  # convolution
        "bcxy,oc->boxy",  # the columns are between the rows
        "jf,jd->jfd",  # no sum
        "bt,bts->s",  # a matrix as a vector
        "xtb,btd->xd",  # axes that are not in the same order
        "bd,dhk->bhk",  # two axes beside the one that is summed over
        "dd,df->f",  # a diagonal
    ],
)
def test_no_product_of_two_matrices(pattern: str) -> None:
    """X W would not say what is multiplied by what."""
    assert product(pattern) is None


def test_axes_that_both_operands_keep_are_of_each_product() -> None:
    """Of b and h, which have labels 0 and 1."""
    actual = product("bthk,bshk->bhts")

    assert actual is not None
    assert (0, 1) == actual.batch
