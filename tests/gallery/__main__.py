"""``python -m tests.gallery [NAME]...``: makes the reports of the gallery anew, its index, and the README's picture."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gallery.entries import ENTRIES, FOLDER, PICTURED, Entry
from tests.reports.browser import CHROMIUM, browser


def main() -> int:
    chosen = [entry for entry in ENTRIES if entry.words and (not sys.argv[1:] or entry.name in sys.argv[1:])]
    with ThreadPoolExecutor(2) as pool:
        failed = [entry.name for entry, ok in zip(chosen, pool.map(_made, chosen), strict=True) if not ok]
    (FOLDER / "README.md").write_text(index(), encoding="utf-8")
    if PICTURED in [entry.name for entry in chosen] and CHROMIUM is not None:
        _draw_picture()
    for name in failed:
        print(f"{name}: not made", file=sys.stderr)
    return 1 if failed else 0


def _made(entry: Entry) -> bool:
    """Makes one entry's files. A report whose checks fail is written too, and says so; that is no entry."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "reports.cli", "report", *shlex.split(entry.words), "-o", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
            return False
        for suffix in (".md", ".html", ".json"):
            shutil.move(Path(folder) / f"report{suffix}", FOLDER / f"{entry.name}{suffix}")
    print(f"made {entry.name}", file=sys.stderr, flush=True)
    return True


def _draw_picture() -> None:
    """The first screen of one report, as the README shows it."""
    with browser() as chromium:
        chromium.open(FOLDER / f"{PICTURED}.html", width=1280)
        (FOLDER / "report.png").write_bytes(chromium.picture(1280, 820))


def index() -> str:
    """A line for each entry: what it is, its files, and the command that makes it."""
    about = "`napkin verify FILE` makes a report again and compares every character; `make gallery` writes them anew."
    lines = ["# Gallery", "", f"Reports of real models. {about}", ""]
    for entry in ENTRIES:
        files = sorted(file.name for file in FOLDER.glob(f"{entry.name}.*"))
        links = ", ".join(f"[{Path(file).suffix[1:]}]({file})" for file in files)
        lines.append(f"- **{entry.title}**: {links}. {entry.origin}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
