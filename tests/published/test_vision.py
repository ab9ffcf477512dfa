"""Published counts of networks for images, from the built-in modules."""

from __future__ import annotations

from fractions import Fraction

from tests.published.derived import of
from tests.published.figures import assert_reproduced, reproduces

GIGA = 10**9


@reproduces("params-vit-b16", "params-vit-h14")
def test_parameters_of_vit(row: str) -> None:
    """The same closed form at the base and at the huge sizes."""
    huge = {"d": 1280, "h": 16, "f": 5120, "L": 32, "P": 14}

    assert_reproduced(row, {"params": of("vit-b")["parameters"].at(**(huge if row == "params-vit-h14" else {}))})


@reproduces("vision-vit_b_16")
def test_products_of_vit(row: str) -> None:
    """One image of 224 x 224; two FLOP are a multiply-add."""
    flops = of("vit-b")["flops.forward.matmul"].at(B=1)

    assert_reproduced(row, {"gmac": Fraction(flops, 2 * GIGA), "flop_counter": flops})


@reproduces("params-resnet-50", slow=True)
def test_parameters_of_resnet(row: str) -> None:
    """1000 classes."""
    assert_reproduced(row, {"params": of("resnet50")["parameters"].at()})


@reproduces("vision-resnet50", slow=True)
def test_products_of_resnet(row: str) -> None:
    """One image of 224 x 224: 4.089 G multiply-adds, as version 1.5 has its strides."""
    flops = of("resnet50")["flops.forward.matmul"].at(B=1)

    assert_reproduced(row, {"gmac": Fraction(flops, 2 * GIGA)})
