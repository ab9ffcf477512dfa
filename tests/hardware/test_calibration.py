"""A calibration goes to a file and back without loss, and what is none is refused in one line."""

from __future__ import annotations

import contextlib
import json
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.derive.operators import Work
from calc.errors import BadInputError
from calc.hardware.calibration import COPY, CalibrationPoint, read
from calc.performance.prediction import predict
from calc.rules.registry import Operator, View
from tests.performance.calibrated import GIGA, MACHINE, RATE, made


def _written(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**made().to_json(), **changes}), encoding="utf-8")
    return path


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every point, the machine and the clock."""
    assert made() == read(_written(tmp_path / "c.json"))


@given(st.data())
def test_a_damaged_calibration_is_refused_or_predicts(data: st.DataObject) -> None:
    """One value of one point is something else: never another exception than a refusal."""
    document = made().to_json()
    point = data.draw(st.sampled_from(document["points"]))
    key = data.draw(st.sampled_from(sorted(point)))
    point[key] = data.draw(st.none() | st.integers(-(10**19), 10**19) | st.text(max_size=3) | st.just([]) | st.just({"m": 1}))

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(BadInputError):
        file = Path(folder, "c.json")
        file.write_text(json.dumps(document), encoding="utf-8")
        works = [_product(), _pointwise()]
        assert predict(works, read(file)).seconds > 0


def _product() -> Work:
    a = View((30, 30), "float32", 900)
    return Work("forward", "", Operator("aten.mm.default", {"self": a, "mat2": a}, (a,)), 54000, 0, 0, 10800, 10800, 1, 1)


def _pointwise() -> Work:
    a = View((30, 30), "float32", 900)
    return Work("backward", "", Operator("aten.gelu.default", {"self": a}, (a,)), 0, 900, 0, 7200, 7200, 1, 1)


def test_the_median_is_of_one_call() -> None:
    """10, 20 and 90 ns for two calls: 10 ns; the quartiles 15 and 55 lie 40 / 20 of the median apart."""
    point = CalibrationPoint(COPY, "float32", {"bytes": 100}, 0, 100, 2, (90, 10, 20))

    assert (Fraction(10, GIGA), Fraction(2)) == (point.seconds, point.spread)
    assert 10 * GIGA == point.bandwidth


def test_peaks_and_bandwidth_are_the_fastest_product_and_the_largest_copy() -> None:
    """All products of the synthetic machine run at one rate."""
    assert {"float32": RATE * GIGA} == made().peaks()
    assert 10 * GIGA == pytest.approx(float(made().bandwidth()), rel=1e-6)


POINT = {"what": "aten.mm", "dtype": "float32", "sizes": {"m": 1}, "flops": 2, "bytes": 0, "calls": 1, "nanoseconds": [5]}
TIMES, LIMITS = "points[0].nanoseconds", "expected an integer from 1 to 10^18"
SAME_BYTES = "it has points of aten.mm in float32 with the same bytes: bytes distinguish them, so they must differ"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another kind": ({"kind": "report"}, "kind is 'report', expected the kind: calibration"),
    "another schema": ({"schema": 9}, "schema is 9, expected the schema that this reads: 1"),
    "no machine": ({"machine": None}, "machine is null, expected an object"),
    "a device without a name": ({"machine": {"device": {"kind": "cpu", "name": 3}}}, "machine.device.name is 3, expected text"),
    "no repetition": ({"points": [{**POINT, "nanoseconds": []}]}, "points[0].nanoseconds is a list of 0, expected a list of at least 1"),
    "no time": ({"points": [{**POINT, "nanoseconds": [0]}]}, f"{TIMES}[0] is 0, {LIMITS}"),
    "a negative time": (
        {"points": [{**POINT, "nanoseconds": [-5]}]},
        f"{TIMES}[0] is -5, {LIMITS}",
    ),
    "half a nanosecond": (
        {"points": [{**POINT, "nanoseconds": [0.5]}]},
        f"{TIMES}[0] is 0.5, {LIMITS}",
    ),
    "truth as FLOPs": ({"points": [{**POINT, "flops": True}]}, "points[0].flops is true, expected an integer from 0 to 10^18"),
    "a size of 0": ({"points": [{**POINT, "sizes": {"m": 0}}]}, "points[0].sizes.m is 0, expected an integer from 1 to 10^18"),
    "no sizes": ({"points": [{k: v for k, v in POINT.items() if k != "sizes"}]}, "points[0] lacks 'sizes'"),
    "an endless fact": ({"machine": {**MACHINE, "load": float("inf")}}, "machine is not plain data of finite numbers"),
    "a product without sizes": (
        {"points": [{**POINT, "sizes": {}}]},
        "it has points of aten.mm in float32 with other sizes than each other, or with none",
    ),
    "products of other sizes": (
        {"points": [POINT, {**POINT, "sizes": {"k": 1}}]},
        "it has points of aten.mm in float32 with other sizes than each other, or with none",
    ),
    "no bytes": (
        {"points": [{**POINT, "flops": 0}]},
        SAME_BYTES,
    ),
    "the same bytes twice": (
        {"points": [{**POINT, "flops": 0, "bytes": 8, "sizes": {"bytes": 8}}] * 2},
        SAME_BYTES,
    ),
    "nothing but a product": ({"points": [POINT]}, "it has no aten.copy_ in float32"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_no_calibration_is_refused(case: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    """The line says what is wrong and how to make one."""
    changes, reason = case
    file = _written(tmp_path / "c.json", **changes)

    with pytest.raises(BadInputError) as refusal:
        read(file)

    assert f"{file} is not a calibration ({reason}): make one with napkin calibrate -o FILE" == str(refusal.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, "\x00", "1e999"])
def test_what_is_not_json_is_refused(text: str, tmp_path: Path) -> None:
    """One line, whatever is in the file."""
    file = tmp_path / "c.json"
    file.write_text(text)

    with pytest.raises(BadInputError, match=r"make one with napkin calibrate -o FILE$"):
        read(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """And a folder."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(BadInputError, match=r"^cannot read a calibration from "):
            read(path)
