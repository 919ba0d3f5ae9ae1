"""The command line, and the composition root: the only module that knows all three packages."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import loadgen
from cluster.screen import harmless
from loadgen.errors import LoadgenError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Commands(click.Group):
    """Turns the harness's own errors into one line and their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LoadgenError as error:
            click.echo(f"loadgen: {harmless(str(error))}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("loadgen: interrupted", err=True)
            ctx.exit(130)


@click.group(cls=_Commands, context_settings=_CONTEXT)
@click.version_option(loadgen.__version__, prog_name="loadgen")
def main() -> None:
    """Load LLM servers, grade their answers, and compare platforms, with evidence for every number.

    Exit codes: 0 done, 1 the run or a part of it failed, 2 bad input, 130 interrupted.
    """


@main.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--dry-run", is_flag=True, help="Print the plan and the command line of every start; start nothing."
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Go on with a run folder: what is finished is not run again.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The run folder to make (default: runs/NAME-TIME).",
)
@click.option("--platform", metavar="NAME", help="Run this platform of the config only.")
@click.option(
    "--address",
    metavar="HOST:PORT",
    envvar="RAY_ADDRESS",
    help="Ray cluster to use (default: start one on this machine).",
)
@click.option("--local", is_flag=True, help="Run without Ray, in this process; for few streams.")
@click.pass_context
def run(
    ctx: click.Context,
    config: Path | None,
    dry_run: bool,
    resume: Path | None,
    out: Path | None,
    platform: str | None,
    address: str | None,
    local: bool,
) -> None:
    """Run the sweep of CONFIG, or go on with one, and report.

    Starts and restarts the servers that the config says are ours, drives load, grades answers, and writes
    tables and a report into the run folder. Ctrl-C leaves a run that opens and resumes.
    """
    from cluster import launch, show_plan  # noqa: PLC0415 - the other commands start faster without

    if (config is None) == (resume is None):
        raise click.UsageError(
            "name a CONFIG file, or --resume RUN (a run goes on with its own frozen config)"
        )
    if resume is not None and (out or platform):
        raise click.UsageError(
            "--out and --platform do not go with --resume: a run keeps its folder and its plan"
        )
    if resume is not None:
        order = launch.resumed_order(resume)
    else:
        assert config is not None
        order = launch.new_order(config, out, platform)
    if dry_run:
        for line in show_plan.plan_lines(order.sweep, order.plan):
            click.echo(line)
        return
    console = Console()
    finished, code = launch.execute(order, console, local=local, address=address)
    _report(finished.path, console)
    if code == 130:
        click.echo(
            f"interrupted; what was measured is kept. Go on with: loadgen run --resume {finished.path}"
        )
    ctx.exit(code)


@main.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--streams", type=click.IntRange(1, 100_000), help="Streams of one worker at once (default 64)."
)
@click.option(
    "--chunk-rate", type=click.FloatRange(1, 400_000), help="Chunks/s to begin with, and to compare."
)
@click.option("--event-bytes", type=click.IntRange(1, 1_000_000), help="Bytes of an event (default 480).")
@click.option("--context-bytes", type=click.IntRange(0, 50_000_000), help="Bytes of a prompt (default 4000).")
def calibrate(
    config: Path | None,
    streams: int | None,
    chunk_rate: float | None,
    event_bytes: int | None,
    context_bytes: int | None,
) -> None:
    """Measure how many chunks a second one load worker of this host holds, at the shapes of CONFIG or at a given one.

    Plays a ladder of rates from the built-in sink (a C program, compiled with cc) to a real worker, some ten seconds a
    shape, and keeps the ceilings for later runs on this host: their cells say what share of it they took.
    """
    from cluster import calibrate as calibration  # noqa: PLC0415 - as above
    from loadgen.config import read_sweep  # noqa: PLC0415 - as above

    if config is not None and (streams or event_bytes or context_bytes):
        raise click.UsageError(
            "the shapes come from CONFIG, or from --streams, --event-bytes, --context-bytes"
        )
    if config is not None:
        shapes = calibration.shapes_of(read_sweep(config)[0])
    else:
        shapes = [calibration.given_shape(streams, event_bytes, context_bytes)]
    found, path = calibration.calibrate(shapes, chunk_rate, click.echo)
    for line in calibration.table(found, chunk_rate):
        click.echo(line)
    click.echo(f"kept in {path}")


@main.command()
@click.argument("run_folder", type=click.Path(path_type=Path), metavar="RUN")
def report(run_folder: Path) -> None:
    """Print the report of a run folder, and write it as Markdown and as one HTML page."""
    _report(run_folder, Console())


@main.command("eval")
@click.argument("url")
@click.option("--model", help="Model to ask (default: the first that the server lists).")
@click.option("--problems", default="classic", show_default=True, help="Problem set.")
@click.option(
    "--max-tokens",
    default=8192,
    show_default=True,
    type=click.IntRange(64),
    help="Room for thought and answer.",
)
@click.option(
    "--concurrency",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Problems asked at once.",
)
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's key.")
def evaluate(
    url: str, model: str | None, problems: str, max_tokens: int, concurrency: int, api_key_env: str | None
) -> None:
    """Ask the server at URL the coding problems, run its programs, and print the grades."""
    from cluster import single  # noqa: PLC0415 - as above
    from reports import blocks, data, sections  # noqa: PLC0415 - as above

    asked = single.Asked(url, model, api_key_env)
    grades = asyncio.run(single.evaluate(asked, problems, max_tokens, concurrency))
    for line in sections.grade_lines(data.graded(grades)):
        click.echo(blocks.plain_text(line))


@main.command()
@click.argument("url")
@click.option("--model", help="Model to ask (default: the first that the server lists).")
@click.option(
    "--problem", default="is_palindrome", show_default=True, help="Problem of the classic set to ask."
)
@click.option(
    "--max-tokens",
    default=4096,
    show_default=True,
    type=click.IntRange(1),
    help="Room for thought and answer.",
)
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's key.")
def probe(url: str, model: str | None, problem: str, max_tokens: int, api_key_env: str | None) -> None:
    """Show one raw exchange with the server at URL: where reasoning and answer arrive, and what would be graded."""
    from cluster import single  # noqa: PLC0415 - as above

    asked = single.Asked(url, model, api_key_env)
    for line in asyncio.run(single.probe(asked, problem, max_tokens)):
        click.echo(line)


@main.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def sim(ctx: click.Context, flags: tuple[str, ...]) -> None:
    """Run a simulated SGLang server; it takes SGLang's flags (`loadgen sim --help` lists them)."""
    from loadgen.sim.server import main as serve  # noqa: PLC0415 - as above

    ctx.exit(serve(list(flags)))


def _report(folder: Path, console: Console) -> None:
    from loadgen.store import Run  # noqa: PLC0415 - as above
    from reports import data, terminal, write  # noqa: PLC0415 - as above

    finished = Run.open(folder)
    terminal.print_report(data.load(finished), console)
    files = write.write_reports(finished)
    console.print(f"report: {files.markdown}", soft_wrap=True, markup=False, highlight=False)
    console.print(f"report: {files.html}", soft_wrap=True, markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
