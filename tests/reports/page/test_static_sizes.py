"""Sizes that are numbers in a report, with what they come from."""

from __future__ import annotations

import torch

from calc.graph.static_sizes import static_sizes
from calc.mathematics.gradients import traced
from calc.spec import Spec
from reports.page import static_sizes as table_of
from reports.page.static_sizes import static_size_table


class Patches(torch.nn.Module):
    """15 × 15 pixels in patches of 5 × 5 are 3 · 3 = 9 tokens, and with a class token 10."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.cut = torch.nn.Conv2d(7, d, 5, stride=5)
        self.first = torch.nn.Parameter(torch.randn(1, 1, d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.first.expand(len(x), -1, -1), self.cut(x).flatten(2).transpose(1, 2)], dim=1).sum()


def _spec(pixels: int = 15) -> Spec:
    dims = {"B": 2, "d": 11}
    return Spec("patches", dims, lambda n: Patches(n.d), lambda n: (torch.randn(n.B, 7, pixels, pixels),), lambda module, x: module(x))


def test_each_number_comes_from_an_input_a_parameter_or_an_operator() -> None:
    """No size of the image is a symbol: 9 and 10 follow from 15 and 5, operator by operator."""
    rows = {row.number: row.origins for row in static_size_table(traced(_spec())).rows}

    assert ["7", "15", "5", "3", "9", "10"] == [*rows]
    assert (("input 0", "(B, 7, 15, 15)"),) == rows["7"] == rows["15"]
    assert (("parameter cut.weight", "(d, 7, 5, 5)"),) == rows["5"]
    assert (("convolution at cut", "(B, 7, 15, 15), (d, 7, 5, 5), (d,) → (B, d, 3, 3)"),) == rows["3"]
    assert (("view at (model)", "(B, d, 3, 3) → (B, d, 9)"),) == rows["9"]
    assert (("cat at (model)", "(B, 1, d), (B, 9, d) → (B, 10, d)"),) == rows["10"]


def test_a_number_of_an_input_and_of_a_kernel_names_both() -> None:
    """Seven channels, and of an image of 5 × 5 pixels the side of a kernel: 5 is a size of both."""
    rows = {row.number: row.origins for row in static_size_table(traced(_spec(5))).rows}

    assert (("input 0", "(B, 7, 5, 5)"),) == rows["5"]  # at the same axes: the image is as large as the kernel
    assert (("input 0", "(B, 7, 5, 5)"),) == rows["7"]

    class Kernel(torch.nn.Module):
        """Seven channels in a kernel of 7 pixels."""

        def __init__(self, d: int) -> None:
            super().__init__()
            self.cut = torch.nn.Conv2d(7, d, 7)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cut(x).sum()

    spec = Spec("kernel", {"B": 2, "d": 11}, lambda n: Kernel(n.d), lambda n: (torch.randn(n.B, 7, 15, 15),), lambda module, x: module(x))
    (origins,) = (row.origins for row in static_size_table(traced(spec)).rows if row.number == "7")

    assert (("input 0", "(B, 7, 15, 15)"), ("parameter cut.weight", "(d, 7, 7, 7)")) == origins


def test_a_number_that_an_operator_reads_is_not_shown_as_computed_by_it() -> None:
    """Of 35 × 35 pixels in 7 channels, 7 · 7 patches."""
    seven = {row.number: [of for of, _ in row.origins] for row in static_size_table(traced(_spec(35))).rows}["7"]

    assert ["input 0"] == seven


def test_an_operator_computes_only_a_number_that_it_does_not_read() -> None:
    statics = static_sizes(traced(_spec()))
    assert statics
    for static in statics:
        assert static.number not in {size for shape in static.sources for size in shape}
        assert static.number in (static.result if static.computed_by is not None else static.leaves[0][1])


def test_a_long_table_says_how_many_numbers_follow(monkeypatch) -> None:
    monkeypatch.setattr(table_of, "MOST", 4)

    assert "and 2 more numbers" == static_size_table(traced(_spec())).more
