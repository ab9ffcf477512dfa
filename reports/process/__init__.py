"""The process of the console command: standard streams of its own, and a quiet end whenever it is interrupted.

This module is imported first and imports nothing that takes time, so that an interrupt while everything else is imported ends quietly too.
What runs is given to it: ``reports.main`` gives it the command line.
"""

from __future__ import annotations

import _thread
import atexit
import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TextIO

SUCCESS, FAILED, REFUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

_interrupts = 0


def interrupted() -> bool:
    """Whether the user interrupted this process, whatever became of the ``KeyboardInterrupt`` on its way out."""
    return _interrupts > 0


def main(command: Callable[[], int]) -> NoReturn:
    """Run ``command``, which imports whatever takes time, and end this process with its exit status."""
    try:
        _raise_interrupts()
        status = command() if _own_streams() else REFUSED
    except BaseException:  # what an import that was interrupted raises may be of any type
        if not interrupted():
            raise
        status = INTERRUPTED
    if signal.getsignal(signal.SIGINT) is _on_interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt
    sys.stdout = sys.stderr  # what a user's code prints when the process ends is no output of Napkin's
    _end(INTERRUPTED if interrupted() else status)


def _end(status: int) -> NoReturn:
    """End the process as ``sys.exit`` does, but leave what is alive to the operating system: to free the millions of objects of a trace one
    by one takes 0.2 s, and libraries complain of what they then miss."""
    import threading

    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stderr.flush()
    if "ctypes" in sys.modules and os.name == "posix":  # torch loads it; without it no library has output that C still holds back
        sys.modules["ctypes"].CDLL(None).fflush(None)
    os._exit(status)


# -- interrupts ------------------------------------------------------------------------------------------------------------------------


def _raise_interrupts() -> None:
    """Interrupts raise ``KeyboardInterrupt`` and are remembered: libraries turn it into other errors, ImportError among them."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have asked to ignore them
        signal.signal(signal.SIGINT, _on_interrupt)
        sys.unraisablehook = _unraisable


def _on_interrupt(_: int, __: FrameType | None) -> None:
    global _interrupts
    _interrupts += 1
    raise KeyboardInterrupt


def _unraisable(error: Any) -> None:
    """An interrupt that arrives in a callback, which cannot raise it, arrives once more when that is over."""
    if issubclass(error.exc_type, KeyboardInterrupt):
        import threading

        later = threading.Timer(0.01, _thread.interrupt_main)
        later.daemon = True
        later.start()
    else:
        sys.__unraisablehook__(error)


# -- standard streams ------------------------------------------------------------------------------------------------------------------


class _Output(io.FileIO):
    """Standard output. The first error of writing to it names it, or is a closed pipe; what is still to be written is then dropped, lest
    Python complain once more when it closes the stream."""

    _failed = False

    def write(self, data: Any, /) -> int:
        if self._failed:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError:
            self._failed = True
            raise
        except OSError as error:
            self._failed = True
            from calc.errors import BadInputError

            raise BadInputError(f"cannot write to standard output: {error.strerror}") from None


class _Talk(io.FileIO):
    """Standard error. Where nobody can read it there is nobody to tell, and results are not worse for it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _own_streams() -> bool:
    """Keep standard output for Napkin alone: descriptor 1 becomes standard error for whatever else writes to it, a user's code, the
    processes it starts, and libraries in C. False where standard output is closed."""
    closed = [descriptor for descriptor in (0, 1, 2) if _closed(descriptor)]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor: no file that is opened later may become a standard stream
    sys.stderr = _text(_Talk(2, "w", closefd=False), sys.stderr)
    if 1 in closed:
        print("napkin: standard output is closed: send it to a file, or to /dev/null", file=sys.stderr)
        return False
    if sys.stdout is not None:
        sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = _text(_Output(own, "w"), sys.stdout)
    return True


def _closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def _text(raw: io.FileIO, like: TextIO | None) -> TextIO:
    """Text on ``raw`` in the encoding of the stream it replaces; a terminal without × still gets the numbers."""
    encoding = getattr(like, "encoding", None) or "utf-8"
    flushing = bool(getattr(like, "line_buffering", False))
    through = bool(getattr(like, "write_through", False))
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "replace", line_buffering=flushing, write_through=through)
