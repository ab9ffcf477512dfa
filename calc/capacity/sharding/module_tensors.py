"""A module's own parameter tensors, built without memory; FSDP2 shards their rows. The functions import torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import prod

from calc.capacity.sharding.model import FIRST, LAYER, ShardedTensor
from calc.spec import Spec


def own_tensors(spec: Spec, sizes: Mapping[str, int]) -> tuple[ShardedTensor, ...]:
    """The parameter tensors, grouped by name pattern and shape; a tensor that occurs L times belongs to the layers."""
    from calc.trace.meta_module import bare

    parameters = bare(spec, sizes).named_parameters()
    counts = Counter((re.sub(r"\.\d+\.", ".*.", name), tuple(parameter.shape)) for name, parameter in parameters)
    return tuple(_tensor(name, shape, count, sizes.get("L", 0)) for (name, shape), count in counts.items())


def own_buffers(spec: Spec, sizes: Mapping[str, int]) -> int:
    """Bytes of the buffers of the module, which no kind of parallelism shards."""
    from calc.trace.meta_module import bare

    return sum(buffer.numel() * buffer.element_size() for buffer in bare(spec, sizes).buffers())


def _tensor(name: str, shape: tuple[int, ...], count: int, layers: int) -> ShardedTensor:
    rows, row_length = (shape[0], prod(shape[1:])) if shape else (1, 1)
    in_layers = "*" in name and layers > 0 and count % layers == 0
    return ShardedTensor(
        name, str(rows), str(row_length), LAYER if in_layers else FIRST, times=count // layers if in_layers else count, per_token=False
    )
