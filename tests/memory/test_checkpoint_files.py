"""Bytes of safetensors and of torch.save archives, against files that the libraries write."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from calc.errors import BadInputError
from calc.memory.checkpoint_files import CheckpointFile, FileTensor, safetensors, torch_save

SHAPES: list[tuple[str, str, tuple[int, ...]]] = [
    ("blocks.0.weight", "float32", (3, 5)),
    ("blocks.0.bias", "bfloat16", (7,)),
    ("scalar", "float32", ()),
    ("empty", "float32", (0, 3)),
    ("Größe\n", "int64", (2,)),  # characters that JSON escapes, and such that take two bytes
    ("fp8", "float8_e4m3fn", (11,)),
    ("mask", "bool", (13,)),
    ("half", "float16", (1000, 17)),
]


def test_a_file_of_safetensors_is_counted_to_the_byte() -> None:
    """Length, header, filling and payload, whatever names, formats and shapes are in it."""
    for count in range(len(SHAPES) + 1):
        chosen = SHAPES[:count]
        tensors = {name: torch.zeros(shape, dtype=torch.float32).to(getattr(torch, dtype)) for name, dtype, shape in chosen}

        assert len(save(tensors)) == safetensors(FileTensor(*each) for each in chosen).total


def test_metadata_is_part_of_the_header() -> None:
    """As transformers writes it: {"format": "pt"}."""
    assert len(save({"a": torch.zeros(3)}, {"format": "pt"})) == safetensors([FileTensor("a", "float32", (3,))], {"format": "pt"}).total


def test_the_header_of_one_tensor_by_hand() -> None:
    """8 + 58 of {"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}} filled up to 64, and 24 of payload."""
    header = '{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'

    assert CheckpointFile(
        "safetensors", 24, 8 + 64, f"8 bytes of length, {len(header)} of header for 1 tensors, 7 to a multiple of 8"
    ) == safetensors([FileTensor("w", "float32", (2, 3))])


def test_two_tensors_of_one_name_and_formats_it_does_not_have_are_refused() -> None:
    """A container that cannot be written has no size."""
    with pytest.raises(BadInputError, match=r"^two tensors of one file are called 'a': names must differ$"):
        safetensors([FileTensor("a", "float32", (1,)), FileTensor("a", "float32", (2,))])
    with pytest.raises(BadInputError, match=r"^a: safetensors has no format for complex128$"):
        safetensors([FileTensor("a", "complex128", (1,))])


@pytest.mark.parametrize("sizes", [(), (1,), (16, 3, 0, 1000), tuple(range(1, 120))])
def test_an_archive_of_torch_save_is_counted_to_the_byte_around_its_pickle(sizes: tuple[int, ...], tmp_path: Path) -> None:
    """Headers, alignment, descriptors and the directory, for no storage and for many."""
    path = tmp_path / "checkpoint.pt"
    torch.save({f"tensor {i}": torch.zeros(n, dtype=torch.uint8) for i, n in enumerate(sizes)}, path)
    with zipfile.ZipFile(path) as archive:
        pickled = archive.getinfo("checkpoint/data.pkl").file_size

    actual = torch_save(sizes, pickled, "checkpoint")

    assert path.stat().st_size == actual.total
    assert sum(sizes) == actual.payload


class Counting(io.RawIOBase):
    """A file that keeps its length and its first bytes alone: an archive of 4 GiB needs no disk."""

    def __init__(self) -> None:
        self.length = 0
        self.head = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        seen = memoryview(data).cast("B")
        self.head += bytes(seen[: max(0, 4096 - len(self.head))])
        self.length += seen.nbytes
        return seen.nbytes

    @property
    def pickled(self) -> int:
        """Bytes of the first record, the pickle: from behind its header to its descriptor."""
        name, extra = struct.unpack("<HH", self.head[26:30])
        return self.head.index(b"PK\x07\x08", 30 + name + extra) - (30 + name + extra)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [
        (7, 2**32 + 5, 11, 0, 13),  # a long record, and short ones beyond it
        (2**31, 2**31 + 3, 17),  # none is long, but the last begins beyond 4 GiB
        (2**32 - 1,),  # the first size that is long
        (2**32 - 2,),
    ],
    ids=["long record", "long archive", "first long", "last short"],
)
def test_an_archive_of_four_gibibytes_and_more_is_counted_to_the_byte(sizes: tuple[int, ...]) -> None:
    """Of memory that is never touched, to a file that only counts."""
    file = Counting()
    torch.save({f"tensor {i}": torch.zeros(n, dtype=torch.uint8) for i, n in enumerate(sizes)}, file)

    assert file.length == torch_save(sizes, file.pickled, "archive").total


def test_a_long_record_has_longer_headers() -> None:
    """20 bytes in the directory and 8 of the descriptor for it, 12 in the directory for each of the two records behind it; what more
    the headers in front of the data take, their alignment rounds up to 64."""
    short, long = (torch_save([size], 100, "checkpoint").overhead for size in (2**32 - 2, 2**32 - 1))

    assert (long - short - (20 + 8 + 2 * 12)) in range(-64, 4 * 64)
    assert long > short
