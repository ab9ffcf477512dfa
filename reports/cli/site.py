"""``napkin site``: the stored closed forms and the questions as a folder of static pages."""

from __future__ import annotations

import click

from reports.cli.common import output_folder, say_written, talk


@click.command()
@click.option("-o", "--output", default="site", show_default=True, metavar="DIR", help="Folder for the pages.")
def site(output: str) -> None:
    """Write a static site: a page for each stored model, in which sizes can be changed, and one for the capacity questions.

    The pages need no server and load nothing. They are evaluated exactly in the reader's browser, and each number opens its derivation.
    """
    from reports.jobs import site as site_job

    folder = output_folder(output)
    with talk() as say:
        written = site_job.site(folder, say)
    say_written(*written)
