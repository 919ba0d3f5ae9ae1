"""The harness's own failures. A request's failure is a value (`records.Outcome`) and never one of these.

LoadgenError
 +- BadInput     the user's input is wrong; nothing has started           (exit code 2)
 +- RunFailed    the world did not allow the run, or a part of it          (exit code 1)
"""


class LoadgenError(Exception):
    """Carries one clear line for the user: what, where, and how to mend it."""

    exit_code = 1


class BadInput(LoadgenError):
    """Wrong input: a config, an argument, a run folder. Raised before anything has started."""

    exit_code = 2


class RunFailed(LoadgenError):
    """The run could not start or go on: a server that does not answer, a port in use, a full disk."""
