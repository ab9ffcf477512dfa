"""A real Chromium, headless, driven over its debugging pipe: what a page does when somebody opens it."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run")


class Browser:
    """Commands and events of the DevTools protocol. Messages are JSON, each ended by a zero byte."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = os.fdopen(read, "rb", buffering=0), os.fdopen(write, "wb", buffering=0)
        self._ids = itertools.count(1)
        self._left = b""
        self._session = ""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params, **({"sessionId": self._session} if self._session else {})}
        self._write.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        actual: dict[str, Any] = answer["result"]
        return actual

    def attach(self) -> None:
        """A page of its own; commands go to it from here on."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, file: Path, width: int = 1280, *, dark: bool = False, touch: bool = False) -> None:
        """Shows a file at a width, and waits until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=touch)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def eval(self, script: str) -> Any:
        """What an expression gives in the page."""
        actual = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in actual, actual
        return actual["result"].get("value")

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def picture(self, width: int, height: int) -> bytes:
        """The top of the page, as a PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", clip=clip)["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = self._read.read(1 << 16)
            assert part, "the browser has ended"
            self._left += part
        message, _, self._left = self._left.partition(b"\0")
        actual: dict[str, Any] = json.loads(message)
        return actual


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium with a profile that is thrown away."""
    assert CHROMIUM is not None
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium reads descriptor 3 and writes descriptor 4.
        shell = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        command = ["bash", "-c", shell, "chromium", CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        actual = Browser(to_us, from_us)
        try:
            actual.attach()
            yield actual
        finally:
            process.terminate()
            process.wait(timeout=20)
