"""``python -m tests.reports.golden``: rewrites every file."""

from __future__ import annotations

from tests.reports.golden import FOLDER, PAGES, written

for name in PAGES:
    (FOLDER / name).write_text(written(name), encoding="utf-8")
    print(FOLDER / name)
