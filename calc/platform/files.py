"""Reads and writes every file that a user names: reads regular files of bounded size, and replaces files only by complete ones.

A FIFO, a device or a socket is never read, so no read blocks or runs forever. A file is written under a temporary name in its folder
and renamed once it is complete; a target that is not a regular file (``/dev/full``, a pipe) is written in place. Errors are one line.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from calc.errors import BadInputError

PathLike = str | os.PathLike[str]
Content = str | Iterable[str] | Callable[[BinaryIO], object]

_NO_WAIT = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_CHUNK = 2**20
_TYPES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input file, of at most ``most`` bytes.

    Reading raises ``error``: ``cannot read WHAT PATH: REASON; ADVICE``.
    """

    most: int
    label: str = ""
    advice: str = ""
    error: type[BadInputError] = BadInputError

    def read_bytes(self, path: PathLike) -> bytes:
        """The content of a regular file. Raises ``error`` if it cannot be read."""
        try:
            return _read(path, self.most)
        except (_RefusalError, OSError, ValueError) as cause:
            raise self._refusal(path, _reason(cause)) from None

    def read_text(self, path: PathLike) -> str:
        """The content decoded as UTF-8; line ends and a byte order mark stay as they are. Raises ``error``."""
        content = self.read_bytes(path)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as cause:
            raise self._refusal(path, f"byte {cause.start} is not UTF-8") from None

    def _refusal(self, path: PathLike, reason: str) -> BadInputError:
        subject, ending = " ".join(filter(None, ("cannot read", self.label, shown(path)))), f"; {self.advice}" if self.advice else ""
        return self.error(f"{subject}: {reason}{ending}")


def shown(path: PathLike) -> str:
    """A path for a message, cut to 200 characters."""
    name = os.fspath(path) or "''"
    return name if len(name) <= 200 else f"{name[:199]}…"


class _RefusalError(Exception):
    """Why a file cannot be read or written. Caught in this module."""


def _reason(cause: Exception) -> str:
    if isinstance(cause, _RefusalError):
        return str(cause)
    if isinstance(cause, OSError):
        return cause.strerror or str(cause)
    return "no file can have this name"  # a zero byte, or characters that the file system's encoding lacks


def _read(path: PathLike, most: int) -> bytes:
    _require_regular(os.stat(path))  # opening a device may already act on it
    descriptor = os.open(path, os.O_RDONLY | _NO_WAIT | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        _require_regular(status)
        chunks, size = [], 0
        while max(size, status.st_size) <= most and (chunk := file.read(min(_CHUNK, most + 1 - size))):
            chunks.append(chunk)
            size += len(chunk)
    if max(size, status.st_size) > most:
        raise _RefusalError(f"it has more than {most:,} bytes, the most that is read")
    return b"".join(chunks)


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _RefusalError(f"it is {_TYPES.get(stat.S_IFMT(status.st_mode), 'something else')}, not a regular file")


# -- writing ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    """``content`` to write to ``path``: a text, several texts in order, or a function that writes to an open file.

    ``expected`` is the content that the file must still have when it is replaced; ``None`` skips this check.
    """

    path: PathLike
    content: Content
    expected: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    """Where an output goes. ``place`` is the path with symbolic links resolved, ``status`` that of the existing file, if any;
    ``descriptor`` is this process's file descriptor, if the path names one (``/dev/stdout``)."""

    path: str
    place: str
    status: os.stat_result | None
    descriptor: int | None = None

    @property
    def through(self) -> bool:
        """Whether it is written in place: it is not a regular file."""
        return self.descriptor is not None or (self.status is not None and not stat.S_ISREG(self.status.st_mode))

    @property
    def written(self) -> Path:
        """The file that changes."""
        return Path(self.place if os.path.islink(self.path) and not self.through else self.path)


def judge(*paths: PathLike, label: str = "") -> tuple[Path, ...]:
    """The files that writing to ``paths`` would change (links resolved). Raises ``BadInputError`` for one that cannot be written."""
    targets = [_judged(path, label) for path in paths]
    _require_distinct(targets)
    return tuple(target.written for target in targets)


def write(*outputs: Output, label: str = "") -> tuple[Path, ...]:
    """The files written: all outputs or none. Raises ``BadInputError``: ``cannot write WHAT PATH: REASON``.

    All targets are checked before the first is written, and all files are complete before the first is renamed into place. An existing
    file keeps its mode; a new one gets the umask's. Only a failure between two renames leaves some files new and some old.
    """
    pairs = [(output, _judged(output.path, label)) for output in outputs]
    _require_distinct([target for _, target in pairs])
    temporaries: dict[str, _Target] = {}
    try:
        for output, target in pairs:
            if not target.through:
                with _one_line(target, label), _beside(target, temporaries) as file:
                    _fill(file, output.content)
        for output, target in pairs:
            if output.expected is not None:
                with _one_line(target, label):
                    _require_unchanged(target, output.expected)
        for output, target in pairs:
            if target.through:
                with _one_line(target, label), os.fdopen(_opened(target), "wb") as file:
                    _fill(file, output.content)
        for temporary, target in temporaries.items():
            with _one_line(target, label):
                os.replace(temporary, target.place)
    finally:
        for temporary in temporaries:
            with suppress(OSError):
                os.unlink(temporary)
    return tuple(target.written for _, target in pairs)


@contextmanager
def _one_line(target: _Target, label: str) -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError:
        raise _unwritten(target.path, label, _RefusalError("its text has a character that UTF-8 lacks")) from None
    except (_RefusalError, OSError) as cause:
        if isinstance(cause, BrokenPipeError) and target.descriptor is not None:
            raise  # the reader of standard output closed it: the command line handles that
        raise _unwritten(target.path, label, cause) from None


def _unwritten(path: PathLike, label: str, cause: Exception) -> BadInputError:
    return BadInputError(f"{' '.join(filter(None, ('cannot write', label, shown(path))))}: {_reason(cause)}")


def _judged(path: PathLike, label: str) -> _Target:
    """The target of a path. Raises ``BadInputError`` if it cannot be written."""
    name = os.fspath(path)
    status: os.stat_result | None
    try:
        descriptor = _descriptor(name)
        if descriptor is not None:
            return _Target(name, name, os.fstat(descriptor), descriptor)
        place = os.path.realpath(name)
        try:
            status = os.stat(name)
        except FileNotFoundError:
            status = None
        target = _Target(name, place, status)
        if status is not None:
            _require_writable(status, name)
        if not target.through:
            _require_folder(os.path.dirname(place), name)
        return target
    except (_RefusalError, OSError, ValueError) as cause:
        raise _unwritten(path, label, cause) from None


def _descriptor(path: str) -> int | None:
    """The file descriptor of this process that a path names (``/dev/stdout``, ``/dev/fd/3``), else ``None``."""
    for _ in range(40):
        folder, name = os.path.split(path)
        if re.fullmatch("[0-9]{1,9}", name) and os.path.realpath(folder) in (f"/proc/{os.getpid()}/fd", "/dev/fd"):
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


def _require_writable(status: os.stat_result, path: str) -> None:
    mode = status.st_mode
    if stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise _RefusalError(f"it is {_TYPES[stat.S_IFMT(mode)]}")
    # The superuser may write to any file, but a read-only one is meant to stay unchanged.
    own = stat.S_IWUSR if status.st_uid == os.geteuid() else stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    if stat.S_ISREG(mode) and not mode & own:
        raise _RefusalError(f"it is read-only (mode {stat.S_IMODE(mode):04o})")
    if not os.access(path, os.W_OK):
        raise _RefusalError("Permission denied")


def _require_folder(folder: str, path: str) -> None:
    """Raises ``_RefusalError`` unless a temporary file can be made in ``folder``."""
    if not os.path.basename(path):
        raise _RefusalError("it is not the name of a file")
    if not os.path.isdir(folder):
        raise _RefusalError(f"there is no folder {shown(folder)}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _RefusalError(f"no file can be made in {shown(folder)}: Permission denied")


def _require_distinct(targets: Collection[_Target]) -> None:
    places: dict[str, str] = {}
    for target in targets:
        if not target.through and target.place in places:
            raise BadInputError(f"{shown(places[target.place])} and {shown(target.path)} are one file: name two")
        places[target.place] = target.path


def _require_unchanged(target: _Target, was: bytes) -> None:
    if os.stat(target.place).st_size != len(was) or _read(target.place, len(was)) != was:
        raise _RefusalError("it has changed since it was read: run the command again")


@contextmanager
def _beside(target: _Target, temporaries: dict[str, _Target]) -> Iterator[BinaryIO]:
    """A temporary file in the target's folder, with the target's final mode and owner."""
    import tempfile  # importing it takes milliseconds, and most runs write no file

    handle, temporary = tempfile.mkstemp(prefix=".napkin-", suffix=".tmp", dir=os.path.dirname(target.place))
    temporaries[temporary] = target
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        if target.status is None:
            os.chmod(temporary, 0o666 & ~_umask())
            return
        if (target.status.st_uid, target.status.st_gid) != (os.geteuid(), os.getegid()):
            with suppress(OSError):  # only the superuser gives files away
                os.chown(temporary, target.status.st_uid, target.status.st_gid)
        os.chmod(temporary, stat.S_IMODE(target.status.st_mode))
        os.fsync(handle)  # the rename drops the old content, so the new content must be on the disk first


def _fill(file: BinaryIO, content: Content) -> None:
    if callable(content):
        content(file)
        return
    for text in [content] if isinstance(content, str) else content:
        file.write(text.encode("utf-8"))


def _opened(target: _Target) -> int:
    """A file descriptor to write to. Raises ``_RefusalError`` for a pipe without a reader instead of waiting for one."""
    if target.descriptor is not None:
        return os.dup(target.descriptor)
    try:
        descriptor = os.open(target.path, os.O_WRONLY | _NO_WAIT)
    except OSError as cause:
        fifo = target.status is not None and stat.S_ISFIFO(target.status.st_mode)
        raise (_RefusalError("nothing reads from this pipe") if fifo else cause) from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _RefusalError("it has changed since it was checked: run the command again")
    os.set_blocking(descriptor, True)
    return descriptor


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
