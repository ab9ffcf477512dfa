"""Figures with findings: what is drawn, said and tabled is one number, and a figure that cannot be had says why."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

import calc
from calc.derive.result import Derivation, Quantity
from calc.derive.rules_of_thumb import compare
from calc.derive.scaling import flops_by_degree
from calc.hardware.accelerators import accelerator, catalogue
from calc.pipeline.precomputed import stored
from calc.units import Unit
from reports.cli import napkin
from reports.figures.drawn import figures
from reports.figures.flops import flops
from reports.figures.memory import COMMON, beside, capacity, memory
from reports.figures.roofline import figure as roofline
from reports.figures.rules_of_thumb import thumbs
from reports.figures.sensitivity import growth
from reports.figures.shapes import Figure, Figures
from reports.jobs import report as report_job
from reports.jobs.request import Request
from reports.live import verify_reports
from reports.page.build import PageContent, build
from reports.page.report import Page
from reports.page.sensitivity import doubled
from reports.typeset import numbers
from reports.writers import html, markdown, tex
from tests.reports import drawings, sample

NBSP = "\u00a0"
ALL = ("memory", "flops", "roofline", "sensitivity", "rules_of_thumb")


@pytest.fixture(scope="module")
def derivation() -> Derivation:
    return sample.derivation()


@pytest.fixture(scope="module")
def page(derivation: Derivation) -> Page:
    return build(PageContent(derivation, comparisons=compare(derivation), roof=drawings.roof()))


@pytest.fixture(scope="module")
def text(page: Page) -> str:
    return html.write(page)


def each(drawn: Figures) -> list[Figure]:
    return [getattr(drawn, name) for name in ALL]


def share(x: str) -> Fraction:
    return Fraction(x.removesuffix("%")) / 100


def cells(row: tuple[str, ...]) -> list[int]:
    """The whole numbers of a row."""
    return [int(cell.replace(",", "")) for cell in row[1:] if re.fullmatch(r"[\d,]+", cell)]


# -- every figure --------------------------------------------------------------------------------------------------------


def test_every_figure_has_a_title_a_description_and_a_finding(page: Page, text: str) -> None:
    """The finding with numbers in it; title and description are the drawing's name for those who do not see it."""
    for drawn in each(page.figures):
        assert drawn.title
        assert drawn.description.endswith(".")
        assert re.search(r"\d", drawn.finding), drawn.finding
        assert f'aria-labelledby="{drawn.anchor}-t {drawn.anchor}-d"' in text


def test_every_figure_stands_above_its_numbers(text: str) -> None:
    """A table comes after it, before the next figure."""
    after = text.split('<figure class="live drawn"')[1:]

    assert 5 == len(after)
    assert all("<table" in part for part in after)


def test_every_figure_is_small(text: str) -> None:
    """At most 8 kB, and colored by classes alone: the page's policy allows no other style."""
    actual = re.findall(r'<figure class="live drawn".*?</figure>', text, re.DOTALL)

    assert 5 == len(actual)
    assert [] == [part[:60] for part in actual if len(part.encode()) > 8_000 or "style=" in part or "<script" in part]


def test_every_class_of_a_shape_has_a_color(page: Page) -> None:
    """In the style sheet, so that nothing is drawn in black by default."""
    sheet = (Path(html.__file__).parent.parent.parent / "templates" / "report.css").read_text(encoding="utf-8")
    for drawn in each(page.figures):
        shapes = (*drawn.rects, *drawn.lines, *drawn.curves, *drawn.dots, *drawn.keys)
        missing = {css for shape in shapes for css in shape.css.split() if f".{css} " not in sheet}
        assert set() == missing, drawn.title


def test_color_is_never_the_only_signal(page: Page) -> None:
    """A colored thing has a letter in the legend, or the table says what it is."""
    for drawn in (page.figures.memory, page.figures.flops):
        assert [key.letter for key in drawn.keys] == [chr(ord("A") + i) for i in range(len(drawn.keys))]
    lettered = {label.words.strip(NBSP) for label in page.figures.roofline.labels if re.fullmatch(rf"[A-Z]{NBSP}?", label.words)}
    assert lettered == {row[0][0] for row in page.figures.roofline.rows if row[0][1:2] == ":"}
    assert all(row[-1].split()[0] in ("compute", "memory", "launch") for row in page.figures.roofline.rows)


def test_findings_and_tables_are_in_every_format(page: Page, text: str) -> None:
    """Drawings are HTML's alone."""
    for written in (text, markdown.write(page), tex.write(page)):
        plain = re.sub(r"[\\{}*~$]|&nbsp;|\s", "", re.sub(r"<[^>]*>", "", written)).replace(NBSP, "")
        for title in ("Memoryatthepeakbykind", "FLOPsbypartoverT", "Growthwhenonesizedoubles", "Errorsofrulesofthumb"):
            assert title in plain
        assert "89,120" in written
    assert "<svg" not in markdown.write(page)


def test_equal_inputs_give_equal_bytes(derivation: Derivation, text: str) -> None:
    assert text == html.write(build(PageContent(derivation, comparisons=compare(derivation), roof=drawings.roof())))


# -- memory by kind --------------------------------------------------------------------------------------------------------


def test_the_kinds_add_up_to_the_peak(derivation: Derivation) -> None:
    """89,120 bytes, in the table and as widths: all of the bar, as no capacity is near."""
    drawn = memory(derivation, None)
    rows = {row[0]: cells(row)[0] for row in drawn.rows}

    kinds = ("parameter", "optimizer state", "gradient", "activation", "input")
    assert 89_120 == rows["all: the peak"] == sum(rows[kind] for kind in kinds)
    assert abs(sum(share(r.width) for r in drawn.rects) - 1) < Fraction(1, 1000)
    assert [share(r.x) for r in drawn.rects] == sorted(share(r.x) for r in drawn.rects)


def test_the_finding_of_memory_says_what_the_table_says(derivation: Derivation) -> None:
    """Whether it fits, what is left, and the largest kind with its share."""
    drawn = memory(derivation, accelerator("h100-sxm"))
    largest = max((row for row in drawn.rows if not row[0].startswith(("all", "NVIDIA"))), key=lambda row: cells(row)[0])

    left = numbers.amount(80 * 10**9 - 89_120, Unit.BYTE).headline
    assert f"The peak of 89.1{NBSP}kB fits NVIDIA H100 SXM5 80GB and leaves {left} free." in drawn.finding
    assert f"The largest kind is {largest[0]}: {largest[2].split(', ')[0]}, {largest[3]} of the peak." in drawn.finding


def test_capacities_stand_where_they_are(derivation: Derivation) -> None:
    """A peak of 62.4 GB between the L40S with 48 and the H100 with 80: the scale ends at 80, so 48 stands at 60 %."""
    drawn = memory(drawings.of_peak(derivation, 700_000), None)
    lines = [(line.css, line.x1) for line in drawn.lines]

    assert [("capacity", "60.00%"), ("capacity", "100.00%"), ("peak", "77.98%")] == lines
    assert f"The peak of 62.4{NBSP}GB is 1.30 times the 48{NBSP}GB of NVIDIA L40S 48GB and does not fit; it fits" in drawn.finding
    assert f"; it fits NVIDIA H100 SXM5 80GB and leaves 17.6{NBSP}GB free." in drawn.finding
    assert {f"{NBSP}48{NBSP}GB{NBSP}l40s{NBSP}", f"{NBSP}80{NBSP}GB{NBSP}h100-sxm{NBSP}"} < {label.words for label in drawn.labels}


def test_a_capacity_far_beyond_is_an_arrow(derivation: Derivation) -> None:
    """A bar of 89 kB against 80 GB would be nothing."""
    drawn = memory(derivation, accelerator("h100-sxm"))

    assert f"80{NBSP}GB{NBSP}h100-sxm{NBSP}→" in [label.words for label in drawn.labels]
    assert ["peak"] == [line.css for line in drawn.lines]


def test_a_peak_beyond_every_device_is_said_to_be(derivation: Derivation) -> None:
    """89,120 · 10⁷ bytes are 891 GB: 3.09 times the largest."""
    drawn = memory(drawings.of_peak(derivation, 10**7), None)

    assert f"The peak of 891{NBSP}GB is 3.09 times the 288{NBSP}GB of NVIDIA B300" in drawn.finding
    assert ", the largest common device, and does not fit." in drawn.finding


def test_common_devices_are_in_order_and_of_the_catalogue() -> None:
    """By capacity; between two neighbors lie the two, and at a capacity exactly it fits."""
    sizes = [catalogue()[name].memory for name in COMMON]

    assert sorted(set(sizes)) == sizes
    assert ["l40s", "h100-sxm"] == [d.id for d in beside(50 * 10**9, None)]
    assert ["a100-sxm-40", "l40s"] == [d.id for d in beside(48 * 10**9, None)]
    assert (f"32{NBSP}GiB", f"141{NBSP}GB") == (capacity(catalogue()["tpu-v4"].memory), capacity(catalogue()["h200-sxm"].memory))


def test_a_planted_byte_of_one_kind_leaves_no_figure(derivation: Derivation) -> None:
    """Kinds that do not add up to the peak are not shown."""
    peak = derivation["memory.peak"]
    first, *others = peak.candidates
    planted = replace(first, part_values={**first.part_values, "gradient": first.part_values["gradient"] + 1})
    wrong = replace(derivation, quantities={**derivation.quantities, "memory.peak": replace(peak, candidates=(planted, *others))})

    assert "the bytes at the peak are not known by kind" == memory(wrong, None).absent


# -- FLOPs by part ---------------------------------------------------------------------------------------------------------


def test_flops_at_every_size_are_those_of_the_derivation(derivation: Derivation) -> None:
    """The last column is the derivation's own total there, the others add up to it."""
    rows = flops(flops_by_degree(derivation)).rows
    assert rows
    for row in rows:
        size = int(row[0].partition(" ")[0].replace(",", ""))
        *parts, total = cells(row)
        assert derivation["flops.step.total"].at(T=size) == total == sum(parts)


def test_the_finding_of_flops_says_what_the_table_says(derivation: Derivation) -> None:
    """The shares at T = 5, and the first size at which the square is the larger, which is a row of the table."""
    drawn = flops(flops_by_degree(derivation))
    here = next(row for row in drawn.rows if row[0].endswith("(here)"))
    over = next(row for row in drawn.rows if row[0].endswith("(overtakes)"))
    square, linear, _, total = cells(here)
    shares = [numbers.percent(Fraction(part, total)) for part in (square, linear)]
    at = f"T{NBSP}={NBSP}{over[0].split()[0]}"

    assert f"matmuls growing with T² {shares[0]}, matmuls growing with T {shares[1]}" in drawn.finding
    assert f"Matmuls growing with T² (at h.*.attn) are at least half of all matmul FLOPs from {at}." in drawn.finding
    assert cells(over)[0] >= cells(over)[1]
    assert all(cells(row)[0] < cells(row)[1] for row in drawn.rows if int(row[0].split()[0]) < 77)


def test_a_power_is_a_straight_line_and_curves_stay_inside(derivation: Derivation) -> None:
    """Both axes are logarithmic; the square rises twice as fast as the first power, to a unit of rounding."""
    square, linear, _ = (curve.path for curve in flops(flops_by_degree(derivation)).curves)
    points = [[tuple(map(int, p.split())) for p in re.split("[ML]", path) if p] for path in (square, linear)]
    rises = [path[0][1] - path[-1][1] for path in points]

    assert all(0 <= x <= 1000 and 0 <= y <= 1000 for path in points for x, y in path)
    assert abs(rises[0] - 2 * rises[1]) <= 3


def test_a_step_without_sizes_to_move_has_no_figure_and_says_why() -> None:
    drawn = flops(flops_by_degree(sample.derivation(quantities={})))

    assert ("FLOPs by part", "this derivation states no matrix multiplications, or no total") == (drawn.title, drawn.absent)


# -- sensitivity -----------------------------------------------------------------------------------------------------------


def test_bars_are_as_long_as_the_logarithms_of_their_factors(derivation: Derivation) -> None:
    """And each number is the quantity at twice the size over the quantity here."""
    drawn = growth(derivation, doubled(derivation))
    asked = {name: {d.dim: d.factor for d in each} for name, each in doubled(derivation).items()}

    assert asked
    for name, by_dim in asked.items():
        for dim, factor in by_dim.items():
            value = derivation[name].value or 0
            assert factor is None or factor == Fraction(derivation[name].at(**{dim: 2 * derivation.sizes[dim]}), value)
    largest = max(f for by_dim in asked.values() for f in by_dim.values() if f is not None)
    assert max(share(r.width) for r in drawn.rects) == Fraction(15, 100)
    assert f"{NBSP}{numbers.times(largest)}" in {label.words for label in drawn.labels}


def test_growth_says_that_what_follows_a_size_by_default_moves_along(page: Page, derivation: Derivation) -> None:
    """f = 4·d, so twice d are 4 · 4·d² + 2 · 4·d·2·f weights of a layer; nobody held f. The table of ranges says the same."""
    (factor,) = (each.factor for each in doubled(derivation)["parameters"] if each.dim == "d")
    moved, held = (derivation["parameters"].at(d=24, **more) for more in ({}, {"f": 48}))
    drawn = growth(derivation, doubled(derivation))
    written = markdown.write(page)

    assert factor == Fraction(moved, 4080) != Fraction(held, 4080)
    assert drawn.finding.startswith("The largest factors when one size doubles, and those that depend on it by default follow: ")
    assert "grow when one size doubles, and those that depend on it by default follow; the length of a bar" in drawn.description
    assert "Factor when one size doubles; sizes that depend on it by default follow" in written
    assert "others held" not in written
    assert "others are held" not in drawn.finding + drawn.description


def test_the_finding_of_sensitivity_names_the_largest_factors(derivation: Derivation) -> None:
    """Of every answer."""
    answers = doubled(derivation)
    words = growth(derivation, answers).finding
    assert answers
    for name, by_dim in answers.items():
        known = {d.dim: d.factor for d in by_dim if d.factor is not None}
        dim = max(known, key=lambda dim: known[dim])
        assert f"{name} {numbers.times(known[dim])} with {dim}" in words


def test_what_cannot_double_is_named(derivation: Derivation) -> None:
    """T = 5 of at most C = 7 positions."""
    bounded = replace(derivation, dims=tuple(replace(dim, at_most="C" if dim.name == "T" else None) for dim in derivation.dims))

    assert "With T doubled, some answer is unknown; the table says why." in growth(bounded, doubled(bounded)).finding


def test_nothing_to_double_leaves_no_figure() -> None:
    assert "no size can double, or no answer depends on a size" == growth(sample.derivation(dims=(), quantities={}), {}).absent


# -- rules of thumb --------------------------------------------------------------------------------------------------------


def test_bars_of_rules_lie_on_their_side_and_as_far(derivation: Derivation) -> None:
    """Too much to the right of the middle, too little to the left; what goes beyond the scale ends there."""
    applied = [c for c in compare(derivation) if c.applies and c.ratio is not None]
    drawn = thumbs(compare(derivation))
    bars = [r for r in drawn.rects if r.css == "bar"]

    assert len(applied) == len(bars) > 1
    for rule, bar in zip(applied, bars, strict=True):
        assert rule.ratio is not None
        off = rule.ratio - 1
        ends = share(bar.x), share(bar.x) + share(bar.width)
        assert float(ends[0] if off >= 0 else ends[1]) == pytest.approx(0.5, abs=2e-4)
        assert f"{numbers.percent(off, signed=True)}" in [label.words for label in drawn.labels]


def test_the_finding_of_rules_counts_those_near_and_names_the_farthest(derivation: Derivation) -> None:
    off = {c.rule.name: c.ratio - 1 for c in compare(derivation) if c.applies and c.ratio is not None}
    near = [name for name, value in off.items() if abs(value) <= Fraction(1, 20)]
    farthest = max(off, key=lambda name: abs(off[name]))
    words = thumbs(compare(derivation)).finding

    assert words.startswith(f"{len(near)} of {len(off)} rules ")
    assert f"The largest error is that of {farthest}: {numbers.percent(off[farthest], signed=True)}." in words


def test_the_finding_of_one_rule_is_of_one_rule(derivation: Derivation) -> None:
    """Neither 1 rules nor 0 of 1 rules; it is named with its error."""
    (applied, *_) = [c for c in compare(derivation) if c.applies and c.ratio is not None]

    name, off = re.escape(applied.rule.name), re.escape(numbers.percent(applied.ratio - 1, signed=True))
    how = "(not )?within 5.0.% of the exact count( only by cancellation)?"
    assert re.match(rf"{name} is {how}: its error is {off}\.", thumbs((applied,)).finding)


def test_without_rules_there_are_no_bars() -> None:
    assert "no rule of thumb was compared" == thumbs(()).absent


# -- roofline --------------------------------------------------------------------------------------------------------------


def test_no_module_is_above_the_roof() -> None:
    """The slope is the bandwidth, the flat part the peak; downwards is larger in a drawing."""
    drawn = drawings.roof()
    slope, flat = (line for line in drawn.lines if line.css == "roof")
    (x0, y0), (x1, y1) = (share(slope.x1), int(slope.y1)), (share(slope.x2), int(slope.y2))

    assert (slope.x2, slope.y2) == (flat.x1, flat.y1)
    assert drawn.dots
    for dot in drawn.dots:
        roof = y0 + (y1 - y0) * (share(dot.x) - x0) / (x1 - x0) if share(dot.x) < x1 else y1
        assert int(dot.y) >= roof - 1, dot


def test_every_module_is_a_row_and_their_times_add_up() -> None:
    """Ten modules; that of the copy alone, without arithmetic, has no dot and is said to have none. What a letter is, the title says."""
    pair, drawn = drawings.rooflines(), drawings.roof()

    assert (10, 9) == (len(drawn.rows), len(drawn.dots))
    assert drawn.folded == "10 modules, eager, slowest first; a letter names a dot of the drawing"
    assert "Not drawn, without arithmetic or memory traffic: 1 module." in drawn.finding
    assert pair.eager.total.flops == sum(cells(row)[0] for row in drawn.rows)
    assert pair.eager.total.bytes == sum(cells(row)[1] for row in drawn.rows)
    longest, sums = pair.eager.by_module()[0]
    assert (f"A: {longest}", numbers.percent(sums.seconds / pair.eager.total.seconds)) == (drawn.rows[0][0], drawn.rows[0][6])
    assert f"{longest} takes {drawn.rows[0][6]}." in drawn.finding


def test_the_area_of_a_dot_is_its_share_of_the_time() -> None:
    """r² over 22² is the share, to the tenth of a pixel that is written; tiny ones are seen all the same."""
    pair = drawings.rooflines()
    drawn = {round(Fraction(dot.radius), 1) for dot in drawings.roof().dots}
    longest = max(sums.seconds for _, sums in pair.eager.by_module()) / pair.eager.total.seconds

    assert max(drawn) == pytest.approx(22 * float(longest) ** 0.5, abs=0.05)
    assert min(drawn) >= 2


def test_without_a_device_there_is_no_roofline(derivation: Derivation) -> None:
    """And the page says how to have one."""
    written = html.write(build(PageContent(derivation)))

    assert "Roofline: not drawn, because no device is named; name one with --gpu ID (napkin list hardware shows the ids)." in written


def test_a_step_without_products_has_no_roofline() -> None:
    """Nothing runs at a rate."""
    pair = replace(drawings.rooflines(), works=())

    assert "the step has no matmul, or no module with both FLOPs and memory traffic" == roofline(pair).absent


# -- other steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gpt2", "llama3-70b", "mixtral", "vit-b", "resnet50", "linear", "cruncher", "mlp"])
def test_a_derivation_from_a_stored_form_has_its_figures(model: str) -> None:
    """Without torch; sizes, cases and moments are all there."""
    form = stored(model)
    if form is None:
        pytest.skip("there is no stored form that holds here")
    drawn = figures(form.derivation({}), doubled(form.derivation({})))

    assert [] == [f.absent for f in (drawn.memory, drawn.flops, drawn.sensitivity) if f.absent]


def test_unknown_quantities_leave_no_figure_and_say_why(derivation: Derivation) -> None:
    unknown = Quantity("memory.peak", Unit.BYTE, "", None, None, unknown="an operator hides its storage")
    drawn = memory(replace(derivation, quantities={"memory.peak": unknown}), None)

    assert "the peak is unknown: an operator hides its storage" == drawn.absent
    assert "this derivation has no memory.peak" == memory(replace(derivation, quantities={}), None).absent
    assert "Memory at the peak by kind: not drawn, because the peak is unknown" in html.write(
        build(PageContent(replace(derivation, quantities={**derivation.quantities, "memory.peak": unknown}, steps=())))
    )


MINE = """
import torch
from calc.spec import Spec
spec = Spec("mine", {"N": 6}, lambda n: torch.nn.Linear(n.N, n.N), lambda n: (torch.randn(n.N),), lambda m, x: m(x).sum())
"""


@pytest.mark.parametrize("mode", [pytest.param("train", marks=pytest.mark.slow), "infer"])
def test_a_module_of_ones_own_with_a_single_size_has_its_figures(mode: str, tmp_path: Path) -> None:
    """No T and no B; the square of its one size is what grows."""
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    derivation = calc.derive(calc.load(f"{tmp_path / 'mine.py'}:spec"), mode=mode)
    drawn = figures(derivation, doubled(derivation), compare(derivation))

    assert ("FLOPs by part over N", "") == (drawn.flops.title, drawn.flops.absent)
    assert ("", "") == (drawn.memory.absent, drawn.sensitivity.absent)


# -- on the command line ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_with_a_device_is_verified_and_an_edited_figure_is_not() -> None:
    """The device travels in the report's inputs; a digit of a label, a legend or the table is noticed."""
    made = report_job.make(Request("linear"), report_job.ReportChoices(gpu="t4"), lambda _: None)
    text = made.texts["report.html"]
    inputs = verify_reports.inputs_of(Path("report.html"), text)
    assert inputs is not None
    assert "t4" == inputs.gpu
    assert "napkin report linear --gpu t4" in text

    again = report_job.make(Request("linear"), report_job.ReportChoices(gpu=inputs.gpu), lambda _: None, inputs).texts["report.html"]
    assert again == text
    for part in re.findall(r'<figure class="live drawn".*?</figure>', text, re.DOTALL):
        *_, last = re.finditer(r"\d", part)
        edited = text.replace(part, f"{part[: last.start()]}{9 - int(last[0])}{part[last.end() :]}")
        assert [] != list(verify_reports.differences(edited, again))


def test_an_unknown_device_is_refused_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(napkin, ["report", "linear", "--gpu", "h100", "-o", str(tmp_path)])

    assert 2 == result.exit_code
    assert result.stderr.startswith("napkin: unknown accelerator 'h100': did you mean h100-")
    assert 1 == result.stderr.count("\n")
    assert [] == list(tmp_path.iterdir())
