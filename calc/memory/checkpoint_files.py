"""Bytes of checkpoint files: safetensors exactly, ``torch.save`` exactly except for its pickle.

``checkpoint.bytes`` is the payload, a closed form. The overhead of a file depends on names and on the digits of offsets, so it is counted
at concrete sizes, from a trace there. Torch-free: a file is described, never written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from calc.errors import BadInputError
from calc.graph.step import Size, StepTrace, Tensor
from calc.units import item_size

# The library's order of dtypes, last first: larger items before smaller ones, so that all stay aligned.
_FORMATS = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "int16": "I16", "uint16": "U16", "float16": "F16",
    "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "complex64": "C64", "float64": "F64", "int64": "I64",
    "uint64": "U64",
}  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(_FORMATS)}


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * item_size(self.dtype)


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A file's size by parts: ``payload`` are the tensors, ``overhead`` is everything else, explained in ``because``."""

    kind: str
    payload: int
    overhead: int
    because: str

    @property
    def total(self) -> int:
        return self.payload + self.overhead


# -- safetensors -----------------------------------------------------------------------------------------------------------


def safetensors(entries: Iterable[FileTensor], metadata: dict[str, str] | None = None) -> CheckpointFile:
    """8 bytes that hold the header's length, the header in JSON padded with spaces to a multiple of 8, then the tensors.

    Source: the format's own description (huggingface/safetensors, README, "Format"); order and filling as version 0.8 writes.
    """
    laid_out = sorted(entries, key=lambda e: (-_rank(e), e.name.encode()))
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for entry in laid_out:
        if entry.name in header:
            raise BadInputError(f"two tensors of one file are called {entry.name[:60]!r}: names must differ")
        end = offset + entry.nbytes
        header[entry.name] = {"dtype": _FORMATS[entry.dtype], "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    written = len(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode())
    filled = -written % 8
    because = f"8 bytes of length, {written:,} of header for {len(laid_out):,} tensors, {filled} to a multiple of 8"
    return CheckpointFile("safetensors", offset, 8 + written + filled, because)


def _rank(entry: FileTensor) -> int:
    if entry.dtype not in _RANK:
        raise BadInputError(f"{entry.name[:60]}: safetensors has no format for {entry.dtype}")
    return _RANK[entry.dtype]


# -- torch.save ------------------------------------------------------------------------------------------------------------

_ALIGNMENT = 64
_LOCAL_HEADER, _DESCRIPTOR, _CENTRAL_HEADER = 30, 16, 46
_PADDING_MARK = 4  # "FB" and the length of the padding
_END = 56 + 20 + 22  # the end of the central directory: of zip64, its locator, and the classic one
_LARGEST = 2**32 - 1  # sizes and offsets from here on stand in 8 bytes, in a field of zip64
_FIELD, _LONG = 4, 8  # what such a field begins with, and each of its numbers
_LONG_DESCRIPTOR = 24

# Further records of every file, with their bytes: before the storages and after them.
_BEFORE = ((".format_version", len("1")), (".storage_alignment", len("64")), ("byteorder", len("little")))
_AFTER = (("version", len("3\n")), (".data/serialization_id", 40))


def torch_save(storages: Sequence[int], pickled: int, stem: str) -> CheckpointFile:
    """The zip archive that ``torch.save`` writes to ``stem.pt``: with storages of these bytes and a pickle of ``pickled`` bytes.

    Every record begins at a multiple of 64 bytes, is stored as it is with a descriptor behind it (an empty one has none), and is
    named in the central directory at the end. A record of 4 GiB or more, or at such an offset, has a zip64 field in both headers, and a
    longer descriptor. Source: the ZIP format (PKWARE APPNOTE 4.3, 4.5.3), ``caffe2/serialize/inline_container.cc`` (``getPadding``,
    ``writeEndOfFile``) and miniz (``mz_zip_writer_add_mem_ex_v2``). The length of the pickle depends on names and on Python's encoding: it
    is read from a real file.
    """
    data = [(f"data/{i}", nbytes) for i, nbytes in enumerate(storages)]
    cursor = central = 0
    for name, nbytes in (("data.pkl", pickled), *_BEFORE, *data, *_AFTER):
        name_length, field = len(f"{stem}/{name}".encode()), _zip64(nbytes, cursor)
        begins = cursor + _LOCAL_HEADER + name_length + _PADDING_MARK + field
        descriptor = _LONG_DESCRIPTOR if field else _DESCRIPTOR
        cursor = begins + -begins % _ALIGNMENT + nbytes + (descriptor if nbytes else 0)
        central += _CENTRAL_HEADER + name_length + field
    payload, total = sum(storages), cursor + central + _END
    because = f"{pickled:,} bytes of pickle, {len(data) + len(_BEFORE) + len(_AFTER) + 1:,} records with headers, aligned to 64 bytes"
    return CheckpointFile("torch.save", payload, total - payload, because)


def _zip64(nbytes: int, offset: int) -> int:
    """Bytes of the field of zip64 for a record of ``nbytes`` at ``offset``: its size twice where that is long, its offset where that is."""
    longs = 2 * (nbytes >= _LARGEST) + (offset >= _LARGEST)
    return _FIELD + _LONG * longs if longs else 0


# -- what is in a checkpoint -------------------------------------------------------------------------------------------------


def entries_of(record: StepTrace) -> tuple[FileTensor, ...]:
    """Model, optimizer state, fp32 copies and iteration of a trace at concrete sizes, each storage under one name.

    Tied weights use their first name. Raises for tensors that share memory and differ, as the safetensors library does.
    """
    persistent = set(record.persistent)
    entries = [(f"model.{name}", t) for name, t in (*record.parameters, *record.buffers) if t.storage in persistent]
    entries += [(f"optimizer.{key}.{name}", t) for name, key, t in record.state]
    entries += [(f"master.{name}", t) for name, t in record.masters]
    tensors: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in entries:
        first_name, first_tensor = tensors.setdefault(tensor.storage, (name, tensor))
        if first_tensor != tensor:
            raise BadInputError(f"{name[:60]} and {first_name[:60]} are different views of one storage, which safetensors refuses")
    iteration = (FileTensor("iteration", "int64", ()),) if record.state or record.gradients else ()
    return tuple(FileTensor(name, t.dtype, tuple(map(_number, t.shape))) for name, t in tensors.values()) + iteration


def _number(size: Size) -> int:
    if not isinstance(size, int):
        raise BadInputError(f"the trace has the symbolic size {size}: a file is counted from a trace at concrete sizes")
    return size
