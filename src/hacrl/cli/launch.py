"""`hacrl launch`: run a recipe as a job of a Ray cluster."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from hacrl.cli.common import say, user_errors


def launch(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Change a key of the recipe: steps=20 method.name=gspo"),
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="Dashboard of the Ray cluster, such as http://10.0.0.1:8265.")
    ] = "http://127.0.0.1:8265",
    out: Annotated[
        str, typer.Option(help="Directory of the run, on a file system that all its machines share.")
    ] = "/shared/runs/latest",
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    retries: Annotated[int, typer.Option(min=0, help="Resume the run that often if its job fails.")] = 0,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the job, do not wait for it.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Only follow the job of the run in --out.")
    ] = False,
) -> None:
    """Train on a Ray cluster: submit the recipe as a job, show what it prints, resume it when it fails.

    Ctrl-C leaves the job running; --follow shows it again. The exit code is that of the run.
    """
    with user_errors():
        from hacrl.recipe import load_recipe

        changes = overrides or []
        load_recipe(recipe, [*changes, "runtime.name=ray"])  # mistakes show at once
        if not (PurePosixPath(out).is_absolute() and out.isprintable()):
            raise ValueError(f"--out {out!r}: expected an absolute path, which all machines see alike")

        from hacrl.runtime import RuntimeFailure, jobs

        client = jobs.open_client(cluster)
        known = jobs.jobs_of(client, out)
        if follow and not known:
            raise RuntimeFailure(f"the cluster at {cluster} has no job of a run in {out}: leave --follow out")

        def start(resumed: bool) -> str:
            job: str = (
                known.pop().submission_id
                if follow and known
                else jobs.submit(client, recipe, changes, out, resume=resumed)
            )
            say(f"Job {job}, run directory {out}")
            return job

        if detach:
            start(resume)
            return
        try:
            outcome = jobs.launch(client, start, _show, resume=resume, retries=retries)
        except KeyboardInterrupt:
            say("The job goes on. Show it again with the same command and --follow.")
            raise typer.Exit(130) from None
    if outcome.status != "SUCCEEDED":
        say(f"The job has {outcome.status.lower()}: {outcome.message}")
        raise typer.Exit(outcome.exit_code if outcome.exit_code and outcome.exit_code > 0 else 1)
    say("The job has succeeded.")


def _show(text: str) -> None:
    from hacrl.printable import printable

    typer.echo("\n".join(map(printable, text.split("\n"))), nl=False)
