"""``python -m reports.cli``: the command without its console script."""

from reports.cli import main

main()
