"""All scenarios of the fault server, and the pages made from them. `python -m loadgen.sim.faults.table > docs/faults.md`."""

import sys

from loadgen.sim.faults import connections, ends, framing, garbage, pace, refusals, tokens
from loadgen.sim.faults.scenario import Pace, Scenario

_MODULES = (ends, refusals, garbage, framing, tokens, pace, connections)
GROUPS: dict[str, list[Scenario]] = {
    (module.__doc__ or "").strip().rstrip("."): [
        value for value in vars(module).values() if isinstance(value, Scenario)
    ]
    for module in _MODULES
}
SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario for scenarios in GROUPS.values() for scenario in scenarios
}


def listing() -> str:
    """All scenarios as text for a terminal."""
    lines: list[str] = []
    for scenario in SCENARIOS.values():
        lines += [_shown(scenario), f"    plays  {scenario.does}"]
        if scenario.shows:
            lines.append(f"    shows  {scenario.shows}")
        lines.append(f"    right  {scenario.outcome}: {scenario.right}")
    return "\n".join(lines) + "\n"


def markdown() -> str:
    """docs/faults.md, whole."""
    parts = [_INTRODUCTION]
    for title, scenarios in GROUPS.items():
        parts.append(
            f"\n## {title}\n\n| scenario | plays | shows | a right client reports |\n|---|---|---|---|\n"
        )
        parts += [_row(scenario) for scenario in scenarios]
    return "".join(parts)


def _shown(scenario: Scenario) -> str:
    """The name with its own parameters at their defaults, as one would type it."""
    settings = "".join(f":{name}={value}" for name, value in scenario.parameters.items())
    return f"{scenario.name}{settings}" + ("  (whole server)" if scenario.is_server_wide else "")


def _row(scenario: Scenario) -> str:
    own = "".join(f" `{name}={value}`" for name, value in scenario.parameters.items())
    name = f"`{scenario.name}`{own}" + (" (whole server)" if scenario.is_server_wide else "")
    cells = (name, scenario.does, scenario.shows, f"`{scenario.outcome}`. {scenario.right}")
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"


_PACE = Pace()
_INTRODUCTION = f"""# The fault server

<!-- generated: .venv/bin/python -m loadgen.sim.faults.table > docs/faults.md -->

Every fault of a stream that users of load generators have reported, played by script, so that any harness can be pointed
at it and its word compared with the truth.

    .venv/bin/loadgen sim --port 30000 --scenario stall                       # every stream stalls
    .venv/bin/loadgen sim --port 30000 --scenario 'healthy*63,stall:after=3'  # one of 64 does
    .venv/bin/loadgen sim --port 30000 --scenario healthy                     # none does, but each request may choose
    .venv/bin/loadgen sim --list-scenarios

`--scenario` takes `NAME`, `NAME:KEY=VALUE:...`, `NAME*COUNT`, and several of them with commas between: requests go through
the list in turn. On a server that was started with `--scenario` a request may choose for itself, without a restart:

- in the query: `POST /v1/chat/completions?scenario=reset:after=2`
- in the model's name, for harnesses that cannot change the path: `"model": "fault/reset:after=2"`

An unknown name ends the start with exit code 2, and a request with status 400. Scenarios of the whole server act as long as
it runs, and can be chosen at its start only.

Streams (`"stream": true`) of `/v1/chat/completions`, `/v1/completions` and `/generate` are scripted. Everything else, requests
without `stream` included, is the simulator's own healthy answer, so that a harness's preflight passes. Text, tokens and usage
are the simulator's too: where the fault does not concern them they are exact. Streams do not share a batch: each has the pace
of its parameters, which every scenario takes beside its own: `first_s={_PACE.first_s}` (to the first byte),
`gap_s={_PACE.gap_s}` (between text events), `tokens={_PACE.tokens}` (tokens an event). `--time-scale` does not concern them.

## The truth

`GET /__faults/log` gives what was sent when, for the last 10,000 scripted requests (`?last=N`: for the last N);
`DELETE /__faults/log` forgets them.
Times are CLOCK_MONOTONIC of the server's host in ns, taken just before the send.

| key | meaning |
|---|---|
| `requests[].number`, `scenario`, `path`, `client_port` | which request it was, and what was played |
| `received_ns`, `head_ns`, `first_token_ns`, `last_token_ns`, `ended_ns` | its moments; null: did not happen |
| `prompt_tokens`, `max_tokens`, `tokens`, `bytes` | tokens of the prompt as counted here, the limit, what was sent |
| `sends` | a list of [ns, bytes, output tokens so far], one for each event, head or piece of framing; at most 20,000 |
| `ended` | whole, closed by the server, reset by the server, open and silent, client closed; null: still running |
| `server[]` | faults of the whole server: `scenario`, `from_ns`, `to_ns` |

The outcomes are those of the `outcome` column in [data.md](data.md). "Right" is said of a client that asks for usage with
`stream_options`, and whose limits on the first byte, on silence and on the whole request are shorter than the fault. Numbers after a # are issues
in the public repository of that name.
"""

if __name__ == "__main__":
    sys.stdout.write(markdown())
