"""From what a user writes to a spec: a built-in name, ``transformers:NAME``, ``hf:PATH`` of a Hugging Face config, or ``FILE.py:NAME``."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from calc.errors import BadInputError, ConfigError, NapkinError, SpecError, suggestion, words_of
from calc.models.catalogue import CATALOGUE, CONFIGS, CatalogueEntry, configs
from calc.platform import files
from calc.platform.model_files import file_of
from calc.spec import Spec

_CODE = files.Kind(2**26, "the code of")
_FORMS = "give a built-in name, hf:PATH of a config.json, or FILE.py:NAME"


def load(name: str) -> Spec:
    """The spec that ``name`` stands for. Its ``key`` identifies the content, for the cache of traces."""
    require(name)
    head, _, tail = name.partition(":")
    if head in CATALOGUE:
        return _checked(_built_in(CATALOGUE[head], tail), name)
    bundled = head == "transformers" and tail in configs()
    if head == "hf" or bundled:
        from calc.models import hf

        spec = hf.spec(str(CONFIGS / f"{tail}.json") if bundled else tail)
        return _checked(dataclasses.replace(spec, name=name) if bundled else spec, name)
    file, _, attribute = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    with _users_own(name):
        return _checked(_from_file(Path(file), attribute), name)


def require(name: str) -> None:
    """Refuse, before anything is imported, a ``name`` that ``load`` cannot know: of no form of its, or of a file that does not exist."""
    head, _, tail = name.partition(":")
    file, colon, _ = name.rpartition(":")
    if head == "hf" and tail:
        config_file(tail)
    elif name.endswith(".py"):
        _require_code(Path(name))
    elif colon and file.endswith(".py"):
        _require_code(Path(file))
    elif head not in CATALOGUE and not (head == "transformers" and tail in configs()):
        raise BadInputError(_unknown_model(name))


def config_file(path: str) -> Path:
    """The config file at a path, which may be its folder. Raises ``ConfigError`` if there is none."""
    file = Path(path)
    if os.path.isdir(file):  # os.path, unlike Path, returns False for names that are too long
        file = file / "config.json"
    if not os.path.exists(file):
        raise ConfigError(f"no config at {path[:200]}: give the path of a config.json or of its folder (nothing is downloaded)")
    return file


def _require_code(file: Path) -> None:
    if not os.path.exists(file):  # unlike Path.exists, this is False for names that are too long
        raise BadInputError(f"no file {str(file)[:200]}: give the path of the Python file that holds the spec")


def _unknown_model(name: str) -> str:
    shown = name if len(name) <= 60 else f"{name[:59]}…"
    if name.endswith(".json") or os.path.isdir(name):
        return f"{shown!r} is not a built-in model: for a Hugging Face config write hf:{shown}"
    if name.startswith("transformers:"):
        config = name.partition(":")[2]
        return f"unknown configuration {config[:40]!r} of transformers: {suggestion(config, configs())} (your own config.json is hf:PATH)"
    in_lower_case = name.lower()  # as all built-in names are
    near = [in_lower_case] if in_lower_case in CATALOGUE else difflib.get_close_matches(in_lower_case, CATALOGUE, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the built-in ones are {', '.join(CATALOGUE)}"
    return f"unknown model {shown!r}: {hint} ({_FORMS})"


def _checked(spec: Spec, name: str) -> Spec:
    """``spec``. Raises NapkinError, naming the spec, if its own sizes do not resolve."""
    try:
        spec.sizes()
        spec.sizes(spec.check_at)
    except NapkinError as error:
        raise type(error)(f"{name}: {error}") from None
    return spec


# -- built-in --------------------------------------------------------------------------------------------------------------


def _built_in(entry: CatalogueEntry, options: str) -> Spec:
    module = importlib.import_module(entry.module)
    exported: Any = getattr(module, entry.attribute)
    spec: Spec = exported(**_options(entry, options)) if entry.options else exported
    if options and not entry.options:
        raise BadInputError(f"{entry.name} has no options, so nothing may follow its name: {entry.name}")
    return dataclasses.replace(spec, key=f"built-in:{spec.name}")  # its file is part of this package's code


def _options(entry: CatalogueEntry, text: str) -> dict[str, float]:
    """``"dropout=0.1"`` as keyword arguments."""
    options: dict[str, float] = {}
    values: dict[str, str] = {}
    for part in text.split(",") if text else ():
        option, _, value = part.partition("=")
        if option in values:
            raise BadInputError(f"{entry.name}: {option[:40]} is given twice, {values[option][:40]!r} and {value[:40]!r}: give it once")
        values[option] = value
        if option not in entry.options:
            raise BadInputError(f"{entry.name} has no option {option[:40]!r}: it has {', '.join(entry.options)}")
        try:
            options[option] = float(value)
        except ValueError:
            raise BadInputError(f"{entry.name}: {option} = {value[:40]!r} is not a number") from None
    return options


# -- the user's own file ------------------------------------------------------------------------------------------------------

_PREFIX = "napkin_user_"


@contextlib.contextmanager
def _users_own(name: str) -> Iterator[None]:
    """Turn any exception that a user's objects raise on access into a one-line SpecError that names the spec."""
    try:
        yield
    except (NapkinError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise SpecError(f"{name}: {words_of(error)}") from None


def line_of_user(error: BaseException) -> str:
    """``FILE line 3``: the innermost frame of ``error`` in a user's own file or one beside it; empty if there is none."""
    modules = [(name, getattr(module, "__file__", None)) for name, module in [*sys.modules.items()] if name.startswith(_PREFIX)]
    folders = {os.path.dirname(os.path.realpath(file)) for _, file in modules if file}
    places = [(os.path.realpath(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [(file, line) for file, line in places if os.path.dirname(file) in folders]
    return f"{own[-1][0]} line {own[-1][1]}" if own else ""


def _from_file(file: Path, attribute: str) -> Spec:
    """The spec named ``attribute`` of a Python file, which is run as it is; without a name, its only spec."""
    code = _CODE.read_bytes(file)  # importlib waits for ever for the code of a FIFO
    module = _run(file, code)
    specs = [name for name, value in vars(module).items() if issubclass(type(value), Spec)]
    attribute = attribute or (specs[0] if len(specs) == 1 else "")
    exported: Any = getattr(module, attribute, None)
    if not issubclass(type(exported), Spec):  # isinstance would use the object's own __class__
        has = f"its specs are {', '.join(specs)}" if specs else "write NAME = calc.Spec(name=…, dims=…, build=…, inputs=…, loss=…)"
        unnamed = f"write {file}:NAME" if specs else "no spec"
        reason = _no_spec(attribute, module) if attribute else unnamed
        raise SpecError(f"{file}: {reason}; {has}")
    spec: Spec = dataclasses.replace(exported, source=f"{file.name}, sha256 {_sha256(code)[:16]}", key=f"{attribute}:{_content(code)}")
    return spec


def _no_spec(attribute: str, module: ModuleType) -> str:
    """What ``attribute`` of ``module`` is instead of a spec, in words; torch is not imported for it."""
    if not hasattr(module, attribute):
        return f"no name {attribute!r}"
    exported: Any = getattr(module, attribute)
    if type(exported) is not type:
        return f"{attribute!r} is of type {type(exported).__name__}, not a spec"
    is_module = any((each.__module__, each.__name__) == ("torch.nn.modules.module", "Module") for each in exported.__mro__)
    return f"{attribute!r} is {'a module class' if is_module else 'a class'}, not a spec"


class _Uncached(SourceFileLoader):
    """Runs a file by its text: bytecode that Python cached is out of date where a file was edited within a second, to the same length."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file as it is."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


_RAN: dict[str, bytes] = {}  # the code of each user's module that is loaded


def _run(file: Path, code: bytes) -> ModuleType:
    """The module of a user's file, run once for each content: a trace finds a model's functions by the module that is loaded."""
    name = f"{_PREFIX}{hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:16]}"
    if name in sys.modules and _RAN.get(name) == code:
        return sys.modules[name]
    description = importlib.util.spec_from_file_location(name, file, loader=_Uncached(name, str(file)))
    if description is None or description.loader is None:
        raise BadInputError(f"{file} is not a Python file that can be run")
    module = importlib.util.module_from_spec(description)
    # Dataclasses and pickles of the file look their module up; its neighbors import as when it is run by itself.
    sys.modules[name] = module
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            description.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's code raises, report its line, not ours
        sys.modules.pop(name, None)
        raise SpecError(f"{file} line {_line(error, file)}: {words_of(error)}") from None
    _RAN[name] = code
    return module


def _line(error: BaseException, file: Path) -> int | str:
    """The innermost line of ``file`` in the traceback of ``error``; ``"?"`` if unknown."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).name == file.name:
        return error.lineno or "?"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == file.resolve()]
    return lines[-1] if lines and lines[-1] else "?"


def _content(code: bytes) -> str:
    """A digest of a file's code and of every imported module that is neither installed nor part of Napkin.

    Files and environment that a model reads while it runs are not covered: turn the cache off for such a model.
    """
    digest = hashlib.sha256(code)
    for name, module in sorted(sys.modules.items()):
        path = file_of(module)
        file = _of_user(os.path.abspath(path)) if path else None
        if file is not None and file.is_file():
            digest.update(f"{name}\n".encode("utf-8", "surrogatepass") + _CODE.read_bytes(file))
    return digest.hexdigest()


@functools.cache
def _of_user(path: str) -> Path | None:
    """The file of a module that is neither installed nor part of Napkin; None for others. Cached, since a process may load thousands."""
    if not path.endswith(".py"):
        return None
    resolved, own = Path(path).resolve(), Path(__file__).resolve().parent.parent.parent
    apart = (*(Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")), own / "calc", own / "reports")
    return None if any(resolved.is_relative_to(folder) for folder in apart) else resolved


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
