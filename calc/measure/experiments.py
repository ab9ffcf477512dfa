"""Small experiments with torch itself, on shapes, strides, dtypes and gradients; results are plain data.

Each is seeded or deterministic, so every run gives the same values (times apart). None depends on a claim or a derivation.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import einops
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from calc.measure.reference import ReferenceCounter
from calc.platform.torch_private import TorchDispatchMode

SEED = 0


def raised(do: Callable[[], object]) -> str:
    """The type and first line of the exception that ``do`` raises; an empty string if it raises none."""
    try:
        do()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def broken_and_repaired(before: str, written: str, repaired: str) -> tuple[str, str]:
    """(message of ``before`` with ``written``, the text ``shown`` that ``before`` with ``repaired`` leaves); code of this repository."""

    def run(code: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
        exec(compile(f"{before}{code}\n", "<note>", "exec"), names)
        return names

    return raised(lambda: run(written)), str(run(repaired)["shown"])


# -- storage and strides ---------------------------------------------------------------------------------------------------


def memory(*shape: int) -> int:
    """Bytes of the storage of an fp32 tensor of ``shape``, on the meta device."""
    return torch.empty(*shape, device="meta").untyped_storage().nbytes()


def stride_index() -> tuple[int, int, int]:
    """The two strides of a 4×4 tensor, and the storage index of its element [1, 2]."""
    x = torch.arange(16.0).reshape(4, 4)
    place = int(1 * x.stride(0) + 2 * x.stride(1))
    assert x.flatten()[place] == x[1, 2]
    return x.stride(0), x.stride(1), place


def transposed() -> tuple[tuple[int, ...], float, bool]:
    """Strides of a 2×3 tensor's transpose, its element [0, 1], and whether it shares the storage."""
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    y = x.transpose(1, 0)
    return y.stride(), float(y[0, 1]), shares(x, y)


def shares(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors have the same storage."""
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def views() -> dict[str, bool]:
    """For each operation, whether its result shares the argument's storage."""
    x = torch.arange(24.0).reshape(4, 6)
    results = {
        "x[0]": x[0],
        "x[:, 1]": x[:, 1],
        "x[1:3]": x[1:3],
        "x.view(6, 4)": x.view(6, 4),
        "x.reshape(6, 4)": x.reshape(6, 4),
        "x.transpose(1, 0)": x.transpose(1, 0),
        "x.permute(1, 0)": x.permute(1, 0),
        "x.expand(2, 4, 6)": x.expand(2, 4, 6),
        "x.contiguous()": x.contiguous(),
        "x.add_(0)": x.add_(0),
        "x.to(float32)": x.to(torch.float32),
        "x.transpose(1, 0).contiguous()": x.transpose(1, 0).contiguous(),
        "x.transpose(1, 0).reshape(4, 6)": x.transpose(1, 0).reshape(4, 6),
        "x.to(bfloat16)": x.to(torch.bfloat16),
        "x.clone()": x.clone(),
        "x + 0": x + 0,
        "x[[0, 1]]": x[[0, 1]],
    }
    return {name: shares(x, y) for name, y in results.items()}


def changed_in_place() -> tuple[bool, bool]:
    """Whether an in-place operation keeps the storage, and whether it keeps the values."""
    x = torch.arange(6.0)
    before, place = x.clone(), x.untyped_storage().data_ptr()
    x.mul_(2)
    return x.untyped_storage().data_ptr() == place, torch.equal(x, before)


def viewed_transpose() -> str:
    """The error that ``view`` of a transpose raises."""
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    return raised(lambda: x.transpose(1, 0).view(2, 3))


def reshaped_transpose() -> tuple[tuple[int, ...], bool]:
    """Shape of a reshaped transpose, and whether it shares the storage."""
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    y = x.transpose(1, 0).reshape(2, 3)
    return tuple(y.shape), shares(x, y)


def viewed() -> tuple[int, ...]:
    """The shape of a 2×3 tensor viewed as 3×2."""
    return tuple(torch.tensor([[1.0, 2, 3], [4, 5, 6]]).view(3, 2).shape)


def elementwise_of_transposes() -> tuple[bool, bool]:
    """Whether the transposed arguments of elementwise operations are contiguous, and whether the results are right."""
    x, y = torch.arange(6.0).reshape(2, 3).t(), torch.arange(6.0, 12.0).reshape(2, 3).t()
    right = all(
        torch.equal(result, expected) for result, expected in ((x + y, (x.contiguous() + y.contiguous())), (x * y, x.contiguous() * y))
    )
    return x.is_contiguous(), right


def float_shape() -> str:
    """The error that a shape with a float raises."""
    return raised(lambda: torch.randn([1.0, 2, 3]))  # type: ignore[list-item]  # that is the experiment


def product_shape(left: tuple[int, int], right: tuple[int, int]) -> str:
    """The shape of a matmul, or the error that it raises."""
    failed = raised(lambda: torch.ones(left) @ torch.ones(right))
    return failed or str(tuple((torch.ones(left) @ torch.ones(right)).shape))


def reduced_last() -> tuple[float, float]:
    """(mean over the last dimension, einops' reduction by "sum" over it) of ones of (2, 3, 4), the first element of each."""
    x = torch.ones(2, 3, 4)
    return float(x.mean(dim=-1)[0, 0]), float(einops.reduce(x, "... hidden -> ...", "sum")[0, 0])


# -- counting ----------------------------------------------------------------------------------------------------------------


def product_flops(rows: int, inner: int, columns: int) -> int:
    """FLOPs of a matmul by torch's own counter, on the meta device."""
    x, w = torch.empty(rows, inner, device="meta"), torch.empty(inner, columns, device="meta")
    with FlopCounterMode(display=False) as counter:
        x @ w
    return int(counter.get_total_flops())


def elementwise_flops(rows: int, columns: int) -> int:
    """Elementwise FLOPs of adding two matrices, by torch's reference decompositions."""
    x, y = torch.ones(rows, columns), torch.ones(rows, columns)
    with ReferenceCounter() as counter:
        x + y
    return int(counter.elementwise)


# -- gradients ---------------------------------------------------------------------------------------------------------------


def scalar_model() -> tuple[list[float], bool]:
    """The gradient of ½(x·w − 5)² at w = (1, 1, 1), and whether x has one."""
    x, w = torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 1, 1], requires_grad=True)
    (0.5 * (x @ w - 5).pow(2)).backward()  # type: ignore[no-untyped-call]  # torch's own is untyped
    assert w.grad is not None
    return w.grad.tolist(), x.grad is not None


def two_layer_gradients(points: int, width: int, outputs: int) -> dict[str, bool | str]:
    """For each formula of a gradient of ``x W1 W2``, whether it equals autograd's, or the error that it raises."""
    x, w1, w2 = randn(points, width).requires_grad_(), randn(width, width).requires_grad_(), randn(width, outputs).requires_grad_()
    h1 = x @ w1
    h2 = h1 @ w2
    for h in (h1, h2):
        h.retain_grad()
    h2.pow(2).mean().backward()  # type: ignore[no-untyped-call]  # torch's own is untyped
    g1, g2 = h1.grad, h2.grad
    assert g1 is not None
    assert g2 is not None
    forms: dict[str, tuple[Callable[[], Tensor], Tensor | None]] = {
        "w2.grad = h1.T @ h2.grad": (lambda: h1.T @ g2, w2.grad),
        "h1.grad = h2.grad @ w2.T": (lambda: g2 @ w2.T, h1.grad),
        "h1.grad = w2.T @ h2.grad": (lambda: w2.T @ g2, h1.grad),
        "w1.grad = x.T @ h1.grad": (lambda: x.T @ g1, w1.grad),
        "x.grad = h1.grad @ w1.T": (lambda: g1 @ w1.T, x.grad),
        "x.grad = w1.T @ h1.grad": (lambda: w1.T @ g1, x.grad),
    }
    return {name: _equals(make, gradient) for name, (make, gradient) in forms.items()}


def _equals(make: Callable[[], Tensor], expected: Tensor | None) -> bool | str:
    failed = raised(make)
    assert expected is not None
    return failed or torch.allclose(make(), expected, rtol=1e-4, atol=1e-6)


# -- number formats ----------------------------------------------------------------------------------------------------------


def rounded(dtype: str, value: float) -> float:
    """``value`` rounded to a dtype."""
    return float(torch.tensor([value], dtype=getattr(torch, dtype))[0])


def limits(dtype: str) -> dict[str, float]:
    """The fields of ``torch.finfo`` for a dtype."""
    info = torch.finfo(getattr(torch, dtype))
    return {name: float(getattr(info, name)) for name in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution")}


def printed(dtype: str, value: float) -> str:
    """A tensor of one element as torch prints it."""
    return str(torch.tensor([value], dtype=getattr(torch, dtype)))


def float32_precision() -> str:
    """Torch's default precision of fp32 matmuls on a CUDA device; ``highest`` uses no tensor cores."""
    return torch.get_float32_matmul_precision()


# -- mixed precision -----------------------------------------------------------------------------------------------------------


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own is untyped
    """Mode that collects the output dtypes of matmuls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own is untyped
        self.dtypes: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.dtypes.add(str(out.dtype).removeprefix("torch."))
        return out


def autocast_dtypes() -> dict[str, list[str]]:
    """Dtypes under bf16 autocast: of matmuls in forward and backward, and of parameters and gradients."""
    model = seeded(lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    x = randn(3, 8)
    with _Products() as forward, torch.autocast("cpu", torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    with _Products() as backward:
        loss.backward()
    dtypes = [{str(t.dtype).removeprefix("torch.") for t in (p, p.grad) if t is not None} for p in model.parameters()]
    return {
        "forward": sorted(forward.dtypes),
        "backward": sorted(backward.dtypes),
        "parameters and gradients": sorted(set().union(*dtypes)),
    }


def scaled_gradients(scale: float, factor: float) -> dict[str, float]:
    """A gradient of ``factor`` in fp16: without loss scaling, with it (unscaled afterwards), and the true value."""

    def gradient(by: float) -> float:
        x = torch.tensor([1.0], dtype=torch.float16, requires_grad=True)
        loss = (x.float() * factor * by).sum()
        (grad,) = torch.autograd.grad(loss, x)
        return float(grad.float() / by)

    return {"plain": gradient(1.0), "scaled": gradient(scale), "true": factor}


def seeded(make: Callable[[], Any]) -> Any:
    """What ``make`` returns with the seed set; torch's own generator stays as it was."""
    with forked():
        torch.manual_seed(SEED)
        return make()


def randn(*shape: int) -> Tensor:
    """Normal values, the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED))


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Context in which torch's generator can be used; on exit it is as before."""
    with torch.random.fork_rng(devices=[]):
        yield


# -- data ------------------------------------------------------------------------------------------------------------------------


def token_file(tokens: int, batch: int, length: int) -> dict[str, Any]:
    """A memory-mapped file of 2-byte tokens and a random batch of it: bytes of each, and whether targets are inputs shifted by one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        np.arange(tokens, dtype=np.uint16).tofile(path)
        mapped = np.memmap(path, dtype=np.uint16, mode="r")
        starts = torch.randint(0, tokens - length, (batch,), generator=torch.Generator().manual_seed(SEED)).tolist()
        x, y = (torch.stack([torch.from_numpy(mapped[s + k : s + k + length].astype(np.int64)) for s in starts]) for k in (0, 1))
        measurements = {
            "file": path.stat().st_size,
            "read": 2 * batch * length * mapped.itemsize,
            "batch": x.untyped_storage().nbytes() + y.untyped_storage().nbytes(),
            "shifted": torch.equal(x[:, 1:], y[:, :-1]),
            "mapped": isinstance(mapped, np.memmap),
        }
        del mapped
    return measurements


def pinned_copy() -> dict[str, float] | None:
    """Seconds to copy 256 MiB to the CUDA device from pageable and from pinned memory; ``None`` without a device."""
    if not torch.cuda.is_available():
        return None
    seconds = {}
    for name, host in (("pageable", torch.empty(2**28, dtype=torch.uint8)), ("pinned", torch.empty(2**28, dtype=torch.uint8).pin_memory())):
        host.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(5):
            host.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        seconds[name] = (time.perf_counter() - start) / 5
    return seconds
