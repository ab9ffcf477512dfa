"""Files of a user: only regular ones of bounded size are read; what is written keeps links, modes, devices and everybody else's files."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calc.errors import BadInputError, ConfigError
from calc.platform.files import Kind, Output, judge, write

KIND = Kind(100, "the list", "make one", error=ConfigError)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, with the umask of most systems."""
    monkeypatch.chdir(tmp_path)
    mask = os.umask(0o022)
    yield
    os.umask(mask)


def refusal(path: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        KIND.read_text(path)
    return str(caught.value)


def unwritten(*outputs: Output) -> str:
    """The refusal of outputs, which leaves the folder as it was."""
    before = {path.name: (path.lstat().st_mode, path.lstat().st_ino) for path in Path().iterdir()}
    with pytest.raises(BadInputError) as caught:
        write(*outputs)
    assert before == {path.name: (path.lstat().st_mode, path.lstat().st_ino) for path in Path().iterdir()}
    return str(caught.value)


# -- reading ---------------------------------------------------------------------------------------------------------------


def test_what_is_no_regular_file_is_refused_by_what_it_is() -> None:
    """Without waiting for a writer, and without reading a device that never ends."""
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert "cannot read the list socket: it is a socket, not a regular file; make one" == refusal("socket")
    os.symlink("fifo", "link")

    assert "cannot read the list fifo: it is a pipe (FIFO), not a regular file; make one" == refusal("fifo")
    assert "cannot read the list link: it is a pipe (FIFO), not a regular file; make one" == refusal("link")
    assert "cannot read the list /dev/zero: it is a character device, not a regular file; make one" == refusal("/dev/zero")
    assert "cannot read the list .: it is a folder, not a regular file; make one" == refusal(".")


def test_a_file_that_becomes_a_fifo_before_it_is_opened_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An opened file is checked again, and opening never blocks."""
    Path("file").touch()
    os.mkfifo("fifo")
    regular = os.stat("file")
    monkeypatch.setattr(os, "stat", lambda *_, **__: regular)

    assert "cannot read the list fifo: it is a pipe (FIFO), not a regular file; make one" == refusal("fifo")


def test_a_file_of_the_limit_is_read_and_one_byte_more_is_not() -> None:
    """Also of a file that says it has 0 bytes, as those of the system do."""
    Path("limit").write_bytes(b"x" * 100)
    Path("above").write_bytes(b"x" * 101)

    assert "x" * 100 == KIND.read_text("limit")
    assert "cannot read the list above: it has more than 100 bytes, the most that is read; make one" == refusal("above")
    if os.path.exists("/proc/self/status"):
        assert "it has more than 100 bytes" in refusal("/proc/self/status")
        assert Kind(10**6).read_bytes("/proc/self/status").startswith(b"Name:")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\0b", r"cannot read the list a\x00b: no file can have this name; make one"),
        ("\ud800", r"cannot read the list \ud800: no file can have this name; make one"),
        ("n" * 300, f"cannot read the list {'n' * 199}…: File name too long; make one"),
        ("", "cannot read the list '': No such file or directory; make one"),
        ("none/there", "cannot read the list none/there: No such file or directory; make one"),
    ],
)
def test_a_name_that_no_file_has_is_one_line(name: str, message: str) -> None:
    assert message == refusal(name)


def test_text_is_utf_8_and_comes_as_it_is() -> None:
    """Line ends and a byte order mark included."""
    Path("text").write_bytes("\ufeffä\r\n\r".encode())
    Path("bytes").write_bytes(b"ab\xff")

    assert "\ufeffä\r\n\r" == KIND.read_text("text")
    assert "cannot read the list bytes: byte 2 is not UTF-8; make one" == refusal("bytes")


# -- writing ---------------------------------------------------------------------------------------------------------------


def test_the_file_behind_a_symbolic_link_is_written_and_returned() -> None:
    """Links to links, into another folder, and to a file that is not there yet."""
    Path("folder").mkdir()
    os.symlink("folder/file", "middle")
    os.symlink("middle", "link")

    for text in ("new", "newer"):
        assert (Path("folder/file").resolve(),) == write(Output("link", text))
        assert text == Path("folder/file").read_text()
    assert os.path.islink("link")
    assert os.path.islink("middle")
    assert ["file"] == os.listdir("folder")


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660, 0o755])
def test_a_file_keeps_its_mode(mode: int) -> None:
    Path("file").write_text("old")
    Path("file").chmod(mode)
    write(Output("file", "new"))

    assert (mode, "new") == (stat.S_IMODE(os.stat("file").st_mode), Path("file").read_text())


def test_a_new_file_has_the_mode_of_the_umask() -> None:
    write(Output("a", "x"))
    os.umask(0o077)
    write(Output("b", "x"))

    assert (0o644, 0o600) == tuple(stat.S_IMODE(os.stat(name).st_mode) for name in "ab")


def test_a_read_only_file_is_refused_for_the_superuser_too() -> None:
    """Through a link as well, and before anything is written."""
    Path("file").write_text("old")
    Path("file").chmod(0o444)
    os.symlink("file", "link")

    for name in ("file", "link"):
        assert f"cannot write {name}: it is read-only (mode 0444)" == unwritten(Output("new", "x"), Output(name, "x"))
    assert "old" == Path("file").read_text()


def test_files_of_others_beside_the_target_are_left_alone() -> None:
    """``y.csv.partial`` is somebody's file, not ours."""
    Path("y.csv.partial").write_text("mine")
    write(Output("y.csv", ["a\n", "b\n"]))

    assert {"y.csv": "a\nb\n", "y.csv.partial": "mine"} == {path.name: path.read_text() for path in Path().iterdir()}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder", "cannot write folder: it is a folder"),
        ("new/", "cannot write new/: it is not the name of a file"),
        ("", "cannot write '': it is not the name of a file"),
        ("loop", "cannot write loop: Too many levels of symbolic links"),
        ("fifo", "cannot write fifo: nothing reads from this pipe"),
        ("a\0b", r"cannot write a\x00b: no file can have this name"),
        ("n" * 300, f"cannot write {'n' * 199}…: File name too long"),
    ],
)
def test_what_cannot_be_written_is_one_line_and_changes_nothing(name: str, message: str) -> None:
    """Nor the files that are written beside it."""
    Path("folder").mkdir()
    Path("file").write_text("old")
    os.mkfifo("fifo")
    os.symlink("loop", "loop")

    assert message == unwritten(Output("file", "new"), Output(name, "x"))
    assert "old" == Path("file").read_text()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert f"cannot write none/x: there is no folder {tmp_path}/none" == unwritten(Output("none/x", "x"))


def test_one_file_twice_is_refused() -> None:
    os.symlink("file", "link")

    assert "file and link are one file: name two" == unwritten(Output("file", "x"), Output("link", "y"))
    assert "file and file are one file: name two" == unwritten(Output("file", "x"), Output("file", "y"))


def test_a_pipe_is_written_through() -> None:
    os.mkfifo("fifo")
    reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    write(Output("fifo", ["a\n", "b\n"]))

    assert b"a\nb\n" == os.read(reader, 100)
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)
    os.close(reader)


def test_a_device_stays_a_device() -> None:
    """A node of our own, as ``/dev/full`` is the system's: only the superuser makes one."""
    try:
        os.mknod("full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
        os.close(os.open("full", os.O_WRONLY))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")

    assert "cannot write full: No space left on device" == unwritten(Output("full", "x"))
    assert "cannot write full: No space left on device" == unwritten(Output("full", "x"), Output("new", "y"))


def test_standard_output_is_written_where_it_is() -> None:
    """By its descriptor: a file behind it is neither replaced nor written from its beginning."""
    code = "from calc.platform.files import Output, write; write(Output('/dev/stdout', 'b\\n')); write(Output('/dev/fd/1', 'c\\n'))"
    Path("out").write_text("a\n")
    before = os.stat("out").st_ino
    with open("out", "a") as file:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        subprocess.run([sys.executable, "-c", code], stdout=file, env=environment, check=True)

    assert (before, "a\nb\nc\n") == (os.stat("out").st_ino, Path("out").read_text())


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError, OSError(28, "No space left on device")])
def test_a_failure_while_text_is_made_leaves_nothing(failure: BaseException | type[BaseException]) -> None:
    """The file keeps its old content, and no half of the new one lies beside it."""

    def text() -> Iterator[str]:
        yield "half"
        raise failure

    Path("file").write_text("old")
    with pytest.raises((KeyboardInterrupt, MemoryError, BadInputError)):
        write(Output("new", "x"), Output("file", text()))

    assert {"file": "old"} == {path.name: path.read_text() for path in Path().iterdir()}


def test_a_character_that_utf_8_lacks_is_one_line() -> None:
    assert "cannot write file: its text has a character that UTF-8 lacks" == unwritten(Output("file", "a\ud800"))


def test_a_file_that_changed_since_it_was_read_is_not_replaced() -> None:
    """Nor are the others: one of the same length, a longer one, and one that is gone."""
    for changed, reason in (("OLD", "it has changed since it was read: run the command again"), ("older", None), (None, None)):
        Path("first").write_text("old")
        Path("second").write_text("old")
        outputs = Output("first", "new", expected=b"old"), Output("second", "new", expected=b"old")
        Path("second").unlink() if changed is None else Path("second").write_text(changed)

        said = "No such file or directory" if changed is None else reason or "it has changed since it was read: run the command again"
        assert f"cannot write second: {said}" == unwritten(*outputs)
        assert "old" == Path("first").read_text()
    Path("second").write_text("old")
    write(*outputs)

    assert ["new", "new"] == [Path(name).read_text() for name in ("first", "second")]


def test_judging_changes_nothing() -> None:
    """What would be written is returned, before any work is done."""
    os.symlink("new", "link")

    assert (Path("new").resolve(), Path("other")) == judge("link", "other")
    assert ["link"] == os.listdir()
    with pytest.raises(BadInputError, match=r"^cannot write a report to \.: it is a folder$"):
        judge("other", ".", label="a report to")
