"""Runs `loadgen` command lines, one at a time, in processes of their own, forked from one that has made the imports.

In: a line of JSON {words, folder, output}. Out: the pid, and the exit code when it has ended.
"""

import json
import os
import sys

import reports.data
import reports.terminal
import reports.write  # noqa: F401 - what `cluster.cli` imports when it needs it
from cluster.cli import main


def become(words: list[str], folder: str, output: str) -> None:
    """This process as a shell would start `loadgen`: a session of its own, its words in a file."""
    os.setsid()
    os.chdir(folder)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(written, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    main(words, prog_name="loadgen")


def serve() -> None:
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            become(**json.loads(line))
        say(pid)
        say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ["COLUMNS"] = "200"
    serve()
