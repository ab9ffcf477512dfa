"""Reads and writes every file that a user names: regular files of bounded size are read, complete files are put in place.

A FIFO, a device or a socket is never read, so that no read waits or goes on without end. A file is written beside its place and moved
there once it is complete; what is no regular file (``/dev/full``, a pipe) is written through and never replaced. One line says why not.
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
    """A kind of file that is read, of at most ``most`` bytes.

    A refusal is an ``error``: ``cannot read WHAT PATH: REASON; ADVICE``. ``suffixes``, where there are any, are judged before the file is
    opened.
    """

    most: int
    what: str = ""
    advice: str = ""
    suffixes: tuple[str, ...] = ()
    error: type[BadInputError] = BadInputError

    def read_bytes(self, path: PathLike) -> bytes:
        """The content of a regular file."""
        try:
            if self.suffixes and Path(path).suffix not in self.suffixes:
                raise _RefusalError(f"its name must end in {' or '.join(self.suffixes)}")
            return _read(path, self.most)
        except (_RefusalError, OSError, ValueError) as cause:
            raise self._refusal(path, _reason(cause)) from None

    def read_text(self, path: PathLike) -> str:
        """The same as text in UTF-8, with its line ends and byte order mark as they are."""
        content = self.read_bytes(path)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as cause:
            raise self._refusal(path, f"byte {cause.start} is not UTF-8") from None

    def _refusal(self, path: PathLike, reason: str) -> BadInputError:
        named, ending = " ".join(filter(None, ("cannot read", self.what, shown(path)))), f"; {self.advice}" if self.advice else ""
        return self.error(f"{named}: {reason}{ending}")


def shown(path: PathLike) -> str:
    """A path in a message: at most 200 characters."""
    name = os.fspath(path) or "''"
    return name if len(name) <= 200 else f"{name[:199]}…"


class _RefusalError(Exception):
    """Why a file is not read or written; it never leaves this module."""


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
    """``content`` goes to ``path``: text, texts in order, or what a function writes to an open file.

    ``expected`` is the content that the file must still have when it is replaced; ``None`` replaces any.
    """

    path: PathLike
    content: Content
    expected: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    """Where an output goes. ``status`` is that of the file there, ``None`` where there is none yet; ``descriptor`` is that of this process
    which the path names (``/dev/stdout``). ``place`` is the path behind symbolic links."""

    path: str
    place: str
    status: os.stat_result | None
    descriptor: int | None = None

    @property
    def through(self) -> bool:
        """Whether it is written in place, since it is no regular file."""
        return self.descriptor is not None or (self.status is not None and not stat.S_ISREG(self.status.st_mode))

    @property
    def written(self) -> Path:
        """The file that changes."""
        return Path(self.place if os.path.islink(self.path) and not self.through else self.path)


def judge(*paths: PathLike, what: str = "") -> tuple[Path, ...]:
    """The files that writing to ``paths`` changes, those behind symbolic links. What cannot be written is refused, before any work."""
    targets = [_judged(path, what) for path in paths]
    _require_distinct(targets)
    return tuple(target.written for target in targets)


def write(*outputs: Output, what: str = "") -> tuple[Path, ...]:
    """Write all outputs or none, and return the files written. A refusal is ``cannot write WHAT PATH: REASON``.

    All are judged before the first is written, each is complete before the first is put in place. A file keeps its mode, a new one gets
    that of the umask. Only a failure while the files are moved into place, one after the other, leaves some new and some old.
    """
    pairs = [(output, _judged(output.path, what)) for output in outputs]
    _require_distinct([target for _, target in pairs])
    temporaries: dict[str, _Target] = {}
    try:
        for output, target in pairs:
            if not target.through:
                with _one_line(target, what), _beside(target, temporaries) as file:
                    _fill(file, output.content)
        for output, target in pairs:
            if output.expected is not None:
                with _one_line(target, what):
                    _require_unchanged(target, output.expected)
        for output, target in pairs:
            if target.through:
                with _one_line(target, what), os.fdopen(_opened(target), "wb") as file:
                    _fill(file, output.content)
        for temporary, target in temporaries.items():
            with _one_line(target, what):
                os.replace(temporary, target.place)
    finally:
        for temporary in temporaries:
            with suppress(OSError):
                os.unlink(temporary)
    return tuple(target.written for _, target in pairs)


@contextmanager
def _one_line(target: _Target, what: str) -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError:
        raise _unwritten(target.path, what, _RefusalError("its text has a character that UTF-8 lacks")) from None
    except (_RefusalError, OSError) as cause:
        if isinstance(cause, BrokenPipeError) and target.descriptor is not None:
            raise  # of standard output; the command line knows what to do
        raise _unwritten(target.path, what, cause) from None


def _unwritten(path: PathLike, what: str, cause: Exception) -> BadInputError:
    return BadInputError(f"{' '.join(filter(None, ('cannot write', what, shown(path))))}: {_reason(cause)}")


def _judged(path: PathLike, what: str) -> _Target:
    """The target of a path, where it may be written."""
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
        raise _unwritten(path, what, cause) from None


def _descriptor(path: str) -> int | None:
    """The descriptor of this process that a path names (``/dev/stdout``, ``/dev/fd/3``), whatever file is behind it."""
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
    # The superuser may write to any file; one that its owner has made read-only is meant to stay as it is.
    own = stat.S_IWUSR if status.st_uid == os.geteuid() else stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    if stat.S_ISREG(mode) and not mode & own:
        raise _RefusalError(f"it is read-only (mode {stat.S_IMODE(mode):04o})")
    if not os.access(path, os.W_OK):
        raise _RefusalError("Permission denied")


def _require_folder(folder: str, path: str) -> None:
    """Refuses a path whose folder takes no new file: each is written beside its place first."""
    if not os.path.basename(path):
        raise _RefusalError("it is no name of a file")
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
    """A new file in the target's folder, with the mode that the target is to have."""
    import tempfile  # takes milliseconds, and most runs write no file

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
        os.fsync(handle)  # the old content is gone once the new one has its name, so the new one must be on the disk


def _fill(file: BinaryIO, content: Content) -> None:
    if callable(content):
        content(file)
        return
    for text in [content] if isinstance(content, str) else content:
        file.write(text.encode("utf-8"))


def _opened(target: _Target) -> int:
    """A descriptor to write through. A pipe that nobody reads is refused, not waited for."""
    if target.descriptor is not None:
        return os.dup(target.descriptor)
    try:
        descriptor = os.open(target.path, os.O_WRONLY | _NO_WAIT)
    except OSError as cause:
        fifo = target.status is not None and stat.S_ISFIFO(target.status.st_mode)
        raise (_RefusalError("nothing reads from this pipe") if fifo else cause) from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _RefusalError("it has changed since it was looked at: run the command again")
    os.set_blocking(descriptor, True)
    return descriptor


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
