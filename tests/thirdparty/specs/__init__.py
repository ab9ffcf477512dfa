"""The list: a file for each kind of module."""

from __future__ import annotations

import importlib
import pkgutil

from tests.thirdparty.case import Case


def cases() -> list[Case]:
    """All modules of the list, by file and in the order that stands there."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return [case for name in names for case in importlib.import_module(f"{__name__}.{name}").CASES]
