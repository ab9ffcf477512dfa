"""Everything a person reads: one document model, written as Markdown, HTML, JSON and terminal text. Torch-free."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Entry point of the console command."""
    from reports import process

    process.main(_command)


def _command() -> int:
    """The exit status of the command. All of Napkin is imported here, where an interrupt ends it quietly."""
    from reports.cli import run

    return run()
