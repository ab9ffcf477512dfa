"""The catalogue of accelerators is consistent in itself, and a user's own entries are read or refused in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import BadInputError
from calc.hardware.accelerator_file import parse, read
from calc.hardware.accelerators import VARIABLE, Accelerator, accelerator, available, catalogue, of_device

ENTRY = """
[my-gpu]
name = "My GPU"
vendor = "me"
architecture = "one"
year = 2030
memory = 80000000000
bandwidth = 2000000000000
source = "its box"
peak.bf16 = { dense = 312.5, sparse = 625, engine = "tensor" }
"""
EVERY = pytest.mark.parametrize("device", catalogue().values(), ids=catalogue())
NVLINK = {"NVLink2": 150, "NVLink3": 300, "NVLink4": 450, "NVLink5": 900}
HALVED = (("tf32", "bf16"), ("bf16", "fp8"))
NARROWER = (("fp64", "fp32"), ("fp32", "tf32"), ("tf32", "bf16"), ("bf16", "fp16"), ("bf16", "fp8"), ("fp8", "fp4"))


def some(condition: Callable[[Accelerator], object]) -> pytest.MarkDecorator:
    """Each device that meets the condition, of which there must be some."""
    devices = {name: device for name, device in catalogue().items() if condition(device)}
    assert devices
    return pytest.mark.parametrize("device", devices.values(), ids=devices)


def pairs(device: Accelerator, formats: Sequence[tuple[str, str]] = NARROWER) -> list[tuple[str, str]]:
    """A format and the next narrower one, where the device has both on one engine."""
    both = [pair for pair in formats if all(dtype in device.peaks for dtype in pair)]
    return [(wide, narrow) for wide, narrow in both if device.peaks[wide].engine == device.peaks[narrow].engine]


@EVERY
def test_an_entry_has_a_source_a_rate_and_sizes_of_a_real_device(device: Accelerator) -> None:
    """Between 1 GB and 1 TB, 0.1 and 100 TB/s, of a year that has passed."""
    assert device.source
    assert device.peaks
    assert 10**9 <= device.memory <= 10**12
    assert 10**11 <= device.bandwidth <= 10**14
    assert 2015 <= device.year <= 2026


@some(lambda device: any(peak.sparse is not None for peak in device.peaks.values()))
def test_sparsity_never_slows_a_format_down_nor_more_than_doubles_it(device: Accelerator) -> None:
    """2:4 sparsity leaves half of the products; printed figures are rounded, by at most 1.3 % of twice the dense rate."""
    assert device.peaks
    for dtype, peak in device.peaks.items():
        assert peak.sparse is None or peak.dense <= peak.sparse <= Fraction(2026, 1000) * peak.dense, dtype


@some(pairs)
def test_a_narrower_format_is_never_slower_on_the_same_engine(device: Accelerator) -> None:
    """Half the bits, at least the rate: a sparse rate that is named dense would stand out as a slower fp8."""
    for wide, narrow in pairs(device):
        assert device.peak(wide) <= device.peak(narrow), (wide, narrow)


@some(lambda device: device.vendor == "NVIDIA" and any(narrow in device.peaks for wide, narrow in HALVED if wide in device.peaks))
def test_a_rate_of_an_nvidia_tensor_core_is_half_that_of_the_next_narrower_format(device: Accelerator) -> None:
    """tf32 : bf16 : fp8 = 1 : 2 : 4, within what rounding does to a printed figure (2.5 %)."""
    for wide, narrow in HALVED:
        if wide in device.peaks and narrow in device.peaks:
            assert abs(device.peak(narrow) / device.peak(wide) - 2) <= Fraction(25, 1000) * 2, (wide, narrow)


@some(lambda device: device.memory_reported is not None)
def test_what_a_driver_reports_is_about_the_marketed_size(device: Accelerator) -> None:
    """GB are marketed and stacks are made in GiB (7.4 % more); drivers keep some for themselves (6 % with error correction in GDDR)."""
    assert Fraction(94, 100) <= Fraction(device.memory_reported or 0, device.memory) <= Fraction(1075, 1000)


@some(lambda device: device.price is not None)
def test_a_price_is_a_dated_assumption(device: Accelerator) -> None:
    """From low to high, and the words say that it is assumed."""
    assert device.price is not None
    assert 0 < device.price.low <= device.price.high
    assert device.price.assumption.startswith("ASSUMPTION of ")


@some(lambda device: device.link_name in NVLINK)
def test_links_are_per_direction(device: Accelerator) -> None:
    """NVLink is marketed as 600, 900 or 1800 GB/s, both directions added; here stands half."""
    assert NVLINK[str(device.link_name)] * 10**9 == device.link


@some(lambda device: device.link is not None and device.inter_node is not None)
def test_a_link_inside_a_node_is_faster_than_between_nodes(device: Accelerator) -> None:
    """Where both are stated."""
    assert device.inter_node is not None
    assert device.link is not None
    assert device.inter_node < device.link


def test_corrections_of_the_figures_say_why() -> None:
    """Found wrong: an impossible clock, a rounded tf32, a link halved or with the ports that leave the node, a rate nobody published."""
    corrected = {device.id: device.corrections for device in catalogue().values() if device.corrections}

    assert {"b200-hgx", "b300", "tpu-v4", "gaudi2", "gaudi3", "m4-max"} == set(corrected)
    assert 75 * 10**12 == accelerator("b200-hgx").peak("fp32")
    assert 21 * 100 * 10**9 // 8 == accelerator("gaudi2").link
    assert 6 * 50 * 10**9 == accelerator("tpu-v4").link


def test_a_device_is_found_by_the_name_its_driver_gives_it_and_by_no_other() -> None:
    """An H100 PCIe is not an H100 SXM, though the names begin alike."""
    assert ["h100-sxm", "h100-pcie"] == [d.id for d in map(of_device, ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")) if d is not None]
    assert of_device("NVIDIA H100") is None


def test_driver_names_belong_to_one_entry_each() -> None:
    """Else the machine at hand could be two devices."""
    names = [name for device in catalogue().values() for name in device.device_names]

    assert len(names) == len(set(names))


def test_a_rate_without_a_format_is_dense_bf16() -> None:
    """312 TFLOP/s of an A100, not the 624 with sparsity and not the 19.5 of fp32."""
    assert 312 * 10**12 == accelerator("a100-sxm-80").peak()


def test_an_entry_of_ones_own_is_read_with_its_exact_digits() -> None:
    """312.5 TFLOP/s; what is not given is unknown, not 0."""
    own = parse(ENTRY, "own.toml")["my-gpu"]

    assert Fraction(3125, 10) * 10**12 == own.peak()
    assert (None, None, None, None) == (own.link, own.price, own.memory_reported, own.watts)


def test_entries_of_a_file_and_of_the_environment_stand_beside_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both at once, and the catalogue is as it was."""
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(ENTRY)
    two.write_text(ENTRY.replace("my-gpu", "other-gpu"))
    monkeypatch.setenv(VARIABLE, str(two))

    assert {"my-gpu", "other-gpu"} == available(one).keys() - catalogue().keys()
    assert "My GPU" == accelerator("other-gpu").name
    assert "my-gpu" not in available()


def test_a_file_that_is_named_comes_before_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One id in both: what was asked for by name is meant."""
    named, around = tmp_path / "named.toml", tmp_path / "around.toml"
    named.write_text(ENTRY.replace("My GPU", "the named one"))
    around.write_text(ENTRY)
    monkeypatch.setenv(VARIABLE, str(around))

    assert "the named one" == accelerator("my-gpu", named).name
    assert "My GPU" == accelerator("my-gpu").name


def test_an_id_of_the_catalogue_is_not_given_to_another_device(tmp_path: Path) -> None:
    """A reader could not tell which of two is meant."""
    file = tmp_path / "mine.toml"
    file.write_text(ENTRY.replace("my-gpu", "h100-sxm"))

    with pytest.raises(BadInputError) as refusal:
        available(file)

    assert f"{file}: [h100-sxm] is the id of an accelerator that comes with Napkin: give yours another one" == str(refusal.value)


PLANTED = {
    "memory as text": (
        ("memory = 80000000000", 'memory = "80 GB"'),
        ".memory is '80 GB', expected a whole number of bytes from 1 to 10^18",
    ),
    "memory as a decimal": (
        ("memory = 80000000000", "memory = 80e9"),
        ".memory is 8.0E+10, expected a whole number of bytes from 1 to 10^18",
    ),
    "truth as memory": (("memory = 80000000000", "memory = true"), ".memory is true, expected a whole number of bytes from 1 to 10^18"),
    "negative rate": (("dense = 312.5", "dense = -312.5"), ".peak.bf16.dense is -312.5, expected a number of TFLOP/s above 0"),
    "no rate": (("dense = 312.5", "dense = 0"), ".peak.bf16.dense is 0, expected a number of TFLOP/s above 0"),
    "infinite rate": (("dense = 312.5", "dense = inf"), ".peak.bf16.dense is Infinity, expected a number of TFLOP/s above 0"),
    "huge exponent": (("dense = 312.5", "dense = 1e999999999"), ".peak.bf16.dense is 1E+999999999, expected a number of TFLOP/s above 0"),
    "sparse below dense": (
        ("sparse = 625", "sparse = 100"),
        ".peak.bf16 has sparse = 100 below dense = 312.5: were they swapped?",
    ),
    "unknown key": (
        ("year = 2030", "year = 2030\ncolor = 1"),
        " has an unknown key 'color': use one of name, vendor, architecture, year, memory, bandwidth, source, peak, memory_reported, "
        "memory_note, link, inter_node, watts, boost_mhz, price, device_names, corrections, note, recalled",
    ),
    "unknown rate": (
        ("sparse = 625", "fast = 1"),
        ".peak.bf16 has an unknown key 'fast': use one of dense, engine, sparse, recalled, accumulate",
    ),
    "no source": (
        ('source = "its box"', ""),
        " lacks source: an entry needs name, vendor, architecture, year, memory, bandwidth, source, peak",
    ),
    "empty source": (('"its box"', '" "'), ".source is empty: say where the figures were read"),
    "price upside down": (
        ("year = 2030", 'year = 2030\nprice = { low = 3, high = 2, as_of = "now" }'),
        ".price has low = 3 above high = 2",
    ),
    "undated price": (("year = 2030", "year = 2030\nprice = { low = 1, high = 2 }"), ".price lacks as_of: an entry needs low, high, as_of"),
    "another device's memory": (
        ("year = 2030", "year = 2030\nmemory_reported = 40000000000"),
        " has memory_reported = 40000000000, which is not near memory = 80000000000: both are bytes of one device",
    ),
    "hostile format": (("peak.bf16", 'peak."\\u001b[31m"'), ".peak has a format '\\x1b[31m': write small letters, digits and '_'"),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_a_wrong_entry_is_refused_with_its_key(planted: tuple[tuple[str, str], str]) -> None:
    """Each line names the file, the entry, the key, what was found and what is asked for."""
    (right, wrong), words = planted
    assert right in ENTRY

    with pytest.raises(BadInputError) as refusal:
        parse(ENTRY.replace(right, wrong), "own.toml")

    assert f"own.toml: my-gpu{words}" == str(refusal.value)


@pytest.mark.parametrize("text", ["", "a", "x = 1", "[[a]]", "[" * 3000, "a = " + "[" * 3000, "[A]\n", "y = 1e", '["\\u202e"]\nname = ""'])
def test_what_is_no_file_of_accelerators_is_refused(text: str) -> None:
    """With a line that begins with the name of the file."""
    with pytest.raises(BadInputError, match=r"^own\.toml"):
        parse(text, "own.toml")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No other exception than a refusal."""
    with contextlib.suppress(BadInputError):
        assert "my-gpu" in parse(ENTRY + text, "own.toml")


def test_a_missing_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    """No file, a folder, and bytes that are no text."""
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("none.toml", ".", "bytes.toml"):
        with pytest.raises(BadInputError, match=r"^cannot read the accelerators of "):
            read(tmp_path / name)
