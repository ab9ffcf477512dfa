"""Every private name of torch that tracing or measuring uses, with the versions of torch it was tested with.

Other files import private names of torch only from here (a test enforces it). Each name is looked up when it is first imported, so a
command pays only for the names it needs. Private attributes of torch's objects and public modules are read where they are needed;
``ATTRIBUTES`` lists them. Nothing is computed here.

A torch newer than the newest of ``TRIED`` prints a warning to standard error; a torch that lacks a name raises ``TorchVersionError``,
which names it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any

import torch

from calc.errors import TorchVersionError

if TYPE_CHECKING:
    from torch._ops import OpOverload as OpOverload
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.fx.experimental.sym_node import SymNode as SymNode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

TRIED = ("2.11", "2.13", "2.15")  # the oldest allowed, the pinned and the newest version

# By module; ``ours=theirs`` where Napkin's name differs from torch's. All were tested with all of TRIED, except those in FEWER.
NAMES: Mapping[str, tuple[str, ...]] = {
    "torch": (
        "core=_C",
        "foreign_functions=_VF",
        "fused_attention_choice=_fused_sdp_choice",
        "scaled_mm=_scaled_mm",
        "subclasses=_subclasses",
        "sym_log2=_sym_log2",
        "tensor_utils=_utils",
    ),
    "torch._C": (
        "BelowAutograd=_AutoDispatchBelowADInplaceOrView",
        "DispatchKey",
        "after_autograd=_after_ADInplaceOrView_keyset",
        "current_node=_current_autograd_node",
        "exclude_key=_SetExcludeDispatchKeyGuard",
        "has_kernel=_dispatch_has_kernel_for_dispatch_key",
        "onednn_is_on=_get_mkldnn_enabled",
        "outside_dispatch=_RestorePythonTLSSnapshot",
        "set_onednn=_set_mkldnn_enabled",
        "throw_on_address=_set_throw_on_mutable_data_ptr",
        "warn_on_address=_set_warn_deprecated_on_mutable_data_ptr",
    ),
    "torch._decomp": ("decomposition_table", "decompositions"),
    "torch._dynamo.source": ("ConstantSource",),
    "torch._guards": ("TracingContext",),
    "torch._library.custom_ops": ("custom_operators=OPDEFS",),
    "torch._ops": ("OpOverload",),
    "torch._prims_common": (
        "corresponding_complex_dtype",
        "corresponding_real_dtype",
        "suggest_memory_format",
    ),
    "torch._subclasses.fake_tensor": (
        "DataDependentOutputException",
        "DynamicOutputShapeException",
        "FakeTensor",
        "FakeTensorMode",
        "in_kernel_invocation_manager",
    ),
    "torch.autograd": ("next_node_number=_get_sequence_nr",),
    "torch.fx.experimental.sym_node": ("SymNode",),
    "torch.fx.experimental.symbolic_shapes": ("DimDynamic", "ShapeEnv"),
    "torch.utils": ("foreach_utils=_foreach_utils",),
    "torch.utils._mode_utils": ("no_dispatch",),
    "torch.utils._python_dispatch": ("TorchDispatchMode", "no_modes=_disable_current_modes"),
    "torch.utils._pytree": ("tree_leaves", "tree_map"),
    "torch.utils._sympy.functions": ("CeilToInt", "FloorDiv", "FloorToInt", "RoundToInt", "TruncToInt"),
}
FEWER: Mapping[str, tuple[str, ...]] = {"decompositions.matmul": ("2.11",)}  # later versions keep symbols by themselves
# Read from objects, or replaced temporarily on modules and classes.
ATTRIBUTES = (
    "torch.Tensor._make_subclass",
    "torch.UntypedStorage._cdata",
    "torch._C._dispatch_get_all_op_names",
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    "torch._C._select_conv_backend",
    "torch._subclasses.FakeTensor",
    "torch._utils._rebuild_tensor",
    "torch.autograd.graph.Node._sequence_nr",
    "torch.library.Library._destroy",
    "torch.nn.Module._apply",
    "torch.nn.Unflatten._require_tuple_int",
    "torch.nn.init._calculate_fan_in_and_fan_out",
    "torch.nn.init._no_grad_trunc_normal_",
    "torch.storage._load_from_bytes",
    "torch.ops.aten.add.Tensor._op_dk",
    "torch.ops.aten.add.Tensor._overloadname",
    "torch.ops.aten.add.Tensor._schema",
    "torch.utils._foreach_utils._foreach_supported_types",
)
_PLACES = {ours: (module, theirs or ours) for module, names in NAMES.items() for ours, _, theirs in (name.partition("=") for name in names)}


def version_of(text: str) -> tuple[int, int]:
    """(major, minor): (2, 15) for ``2.15.0+cu132``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


VERSION = version_of(torch.__version__)


def untried(version: str = torch.__version__) -> str:
    """A warning if ``version`` is newer than every tested torch, else an empty string."""
    newer = version_of(version) > version_of(TRIED[-1])
    return f"torch {version} is newer than {TRIED[-1]}, the newest that Napkin was tried with" if newer else ""


def torch_version() -> dict[str, str]:
    """The installed torch for a provenance: its version and, if it is untested, the warning."""
    return {"torch": torch.__version__, **({"torch_untried": untried()} if untried() else {})}


def __getattr__(name: str) -> Any:
    """The private object of torch called ``name`` here. Raises ``TorchVersionError`` if this torch lacks it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, theirs = _PLACES[name]
    try:
        holder = importlib.import_module(module)
        if not hasattr(holder, theirs):  # a submodule that is not imported yet
            importlib.import_module(f"{module}.{theirs}")
        private = globals()[name] = getattr(holder, theirs)
    except (ImportError, AttributeError):
        tried = ", ".join(TRIED)
        advice = f"Napkin was tested with torch {tried}: pip install 'torch=={TRIED[-1]}.*'"
        raise TorchVersionError(f"torch {torch.__version__} has no {module}.{theirs}, which Napkin needs; {advice}") from None
    return private


if untried() and parent_process() is None:
    print(f"warning: {untried()}", file=sys.stderr)
