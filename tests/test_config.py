"""What is wrong with a config is said in one line that names file, line, key, value and mend."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.config import parse_sweep, read_sweep
from loadgen.errors import BadInput
from loadgen.prompts.settings import PromptSettings
from loadgen.spec import ExternalServer, ProcessServer

GOOD = """\
name: t
platforms:
  - name: a
    server:
      control: process
      endpoint: http://127.0.0.1:31001
      command: [x]
axes:
  budget: {flag: --budget}
server_configs:
  - name: s
    grid: {budget: [1, 2]}
workloads:
  - context_tokens: 10
    output_tokens: 5
load:
  concurrency: [1]
"""
SECOND = "  - name: {name}\n    server: {{control: external, endpoint: '{endpoint}'}}\naxes:"


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def problem(text: str) -> str:
    with pytest.raises(BadInput) as caught:
        parse_sweep(text, "c.yaml")
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_a_good_file_gives_a_sweep_with_its_defaults() -> None:
    sweep = parse_sweep(GOOD, "c.yaml")
    assert isinstance(sweep.platforms[0].server, ProcessServer)
    assert sweep.workloads[0].context_tokens == [10]
    assert sweep.server_configs[0].grid == {"budget": [1, 2]}
    assert (sweep.repeats, sweep.grading, sweep.limits.idle_timeout_s) == (1, None, 120)


def test_a_single_value_stands_for_a_list_of_one() -> None:
    sweep = parse_sweep(changed("concurrency: [1]", "concurrency: 7"), "c.yaml")
    assert sweep.load.concurrency == [7]


def test_axis_values_keep_their_types() -> None:
    sweep = parse_sweep(changed("[1, 2]", "[1, true, 2.5, text, null, '1']"), "c.yaml")
    assert [repr(value) for value in sweep.server_configs[0].grid["budget"]] == [
        "1", "True", "2.5", "'text'", "None", "'1'",
    ]  # fmt: skip


def test_an_external_server_needs_no_command_and_its_url_loses_the_slash() -> None:
    sweep = parse_sweep(changed("axes:", SECOND.format(name="b", endpoint="https://h.example:1/")), "c.yaml")
    server = sweep.platforms[1].server
    assert isinstance(server, ExternalServer)
    assert server.endpoint == "https://h.example:1"


PROBLEMS = {
    "unknown key": (GOOD + "lod: 1\n", "c.yaml:18: lod: unknown key (got 1); did you mean load?"),
    "unknown key far from any": (
        changed("{flag: --budget}", "{flag: --budget, zzz: 1}"),
        "c.yaml:9: axes.budget.zzz: unknown key (got 1); remove it, or use one of: flag, env, read_back",
    ),
    "unknown key of a server": (
        changed("command: [x]", "command: [x]\n      ready_timeout: 5"),
        "c.yaml:8: platforms[0].server.ready_timeout: unknown key (got 5); did you mean ready_timeout_s?",
    ),
    "unknown key of a server of the other kind": (
        changed("control: process", "control: external"),
        "c.yaml:7: platforms[0].server.command: unknown key; remove it, or use one of: control, endpoints, endpoint, api_key_env",
    ),
    "misspelt key before the one that it makes missing": (
        changed("output_tokens", "output_token"),
        "c.yaml:15: workloads[0].output_token: unknown key (got 5); did you mean output_tokens? (1 more after this one)",
    ),
    "missing key": (changed("name: t\n", ""), "c.yaml:1: name: the key is missing; add it"),
    "text for a number": (
        changed("output_tokens: 5", "output_tokens: five"),
        "c.yaml:15: workloads[0].output_tokens: input should be a valid integer (got 'five'); write a whole number",
    ),
    "true for a number": (
        changed("concurrency: [1]", "concurrency: true"),
        "c.yaml:17: load.concurrency: input should be a valid integer (got True); write a whole number",
    ),
    "number for text": (
        changed("command: [x]", "command: [x, 5]"),
        ("c.yaml:7: platforms[0].server.command[1]: input should be a valid string (got 5); "
        "write text, in quotes if it looks like a number"),
    ),
    "line for words": (
        changed("command: [x]", "command: x --y"),
        "c.yaml:7: platforms[0].server.command: input should be a valid list (got 'x --y'); write a list",
    ),
    "list as an axis value": (
        changed("[1, 2]", "[[1]]"),
        "c.yaml:12: server_configs[0].grid.budget[0]: an axis value is a number, text, true, false or null",
    ),
    "infinity": (
        GOOD + "  measure_min_s: .inf\n",
        "c.yaml:18: load.measure_min_s: input should be a finite number (got inf); write a finite one",
    ),
    "unknown axis": (
        changed("grid: {budget", "grid: {budgte"),
        "c.yaml:12: server_configs[0].grid.budgte: unknown axis; define it under axes (known: budget)",
    ),
    "axis in fixed and in grid": (
        changed("grid: {", "fixed: {budget: 3}\n    grid: {"),
        "c.yaml:13: server_configs[0].grid.budget: the axis is in fixed and in grid; keep one",
    ),
    "axis without effect": (
        changed("{flag: --budget}", "{}"),
        "c.yaml:9: axes.budget: an axis needs a flag, an env, or both; otherwise it would change nothing",
    ),
    "axis flag without dash": (
        changed("{flag: --budget}", "{flag: budget}"),
        "c.yaml:9: axes.budget: a flag starts with -, such as --speculative-num-draft-tokens",
    ),
    "axis named as a kind of control": (
        changed("budget: {flag: --budget}", "external: {flg: 1}"),
        "c.yaml:9: axes.external.flg: unknown key (got 1); did you mean flag?",
    ),
    "port above the range": (
        changed("31001", "99999"),
        ("c.yaml:6: platforms[0].server.endpoint: the port is out of range; use 1 to 65535 "
        "(got 'http://127.0.0.1:99999')"),
    ),
    "port 0": (
        changed("31001", "0"),
        "c.yaml:6: platforms[0].server.endpoint: the port is out of range; use 1 to 65535 (got 'http://127.0.0.1:0')",
    ),
    "endpoint without scheme": (
        changed("http://", ""),
        ("c.yaml:6: platforms[0].server.endpoint: an endpoint is a URL such as http://127.0.0.1:30000 "
        "(got '127.0.0.1:31001')"),
    ),
    "endpoint with a password": (
        changed("http://", "http://u:secret@"),
        ("c.yaml:6: platforms[0].server.endpoint: an endpoint is scheme, host and port only; paths are added, and a key "
        "belongs into api_key_env (got 'http://***@127.0.0.1:31001')"),
    ),
    "empty grid": (
        changed("[1, 2]", "[]"),
        "c.yaml:12: server_configs[0].grid.budget: it is empty; give at least one value, or leave the key out",
    ),
    "concurrency 0": (
        changed("concurrency: [1]", "concurrency: 0"),
        "c.yaml:17: load.concurrency: must be at least 1 (got 0); change it",
    ),
    "time limit 0": (
        GOOD + "  measure_max_s: 0\n",
        "c.yaml:18: load.measure_max_s: must be more than 0.0 (got 0); change it",
    ),
    "no room to think": (
        GOOD + "grading: {max_tokens: 3}\n",
        "c.yaml:18: grading.max_tokens: an answer needs room to think; use 4096 or more (got 3)",
    ),
    "duplicated platform": (
        changed("axes:", SECOND.format(name="a", endpoint="http://127.0.0.1:5")),
        "c.yaml:8: platforms[1].name: a stands twice; give each its own",
    ),
    "two platforms at one endpoint": (
        changed("axes:", SECOND.format(name="b", endpoint="http://127.0.0.1:31001/")),
        "c.yaml:9: platforms[1].server.endpoint: http://127.0.0.1:31001 stands twice; give each its own",
    ),
    "duplicated concurrency": (
        changed("concurrency: [1]", "concurrency: [1, 1]"),
        "c.yaml:17: load.concurrency[1]: 1 stands twice; give each its own",
    ),
    "name that is no file name": (
        changed("name: t", "name: ../t"),
        ("c.yaml:1: name: a name has letters, digits, - and _ only, and at most 60 of them; it becomes part of file "
        "names (got '../t')"),
    ),
    "unknown control": (
        changed("control: process", "control: magic"),
        ("c.yaml:4: platforms[0].server: unknown or missing control; write control: process (loadgen starts the server) "
        "or control: external (it is running)"),
    ),
    "key twice": (GOOD + "name: u\n", "c.yaml:18: name: the key stands twice (first on line 1); keep one"),
    "inner key twice": (
        changed("    output_tokens: 5", "    output_tokens: 5\n    output_tokens: 6"),
        "c.yaml:16: workloads[0].output_tokens: the key stands twice (first on line 15); keep one",
    ),
    "key with a newline": (
        GOOD + '"name\\nx": 1\n',
        "c.yaml:18: name x: unknown key (got 1); did you mean name?",
    ),
    "value with a newline": (
        changed("[1, 2]", '["a\\nb", "a\\nb"]'),
        "c.yaml:12: server_configs[0].grid.budget[1]: a b stands twice; give each its own",
    ),
    "key that is a number": (GOOD + "1: x\n", "c.yaml:18: a key is text; put it in quotes (got '1')"),
    "key that is a list": ("? [a]\n: b\n", "c.yaml:1: a key is text; put it in quotes"),
    "empty": ("", "c.yaml: the file is empty; start from configs/demo.yaml"),
    "comments only": ("# x\n", "c.yaml: the file is empty; start from configs/demo.yaml"),
    "list": ("- a\n", "c.yaml:1: a sweep is a mapping of keys to values; start from configs/demo.yaml"),
    "words": ("hello", "c.yaml:1: a sweep is a mapping of keys to values; start from configs/demo.yaml"),
    "not YAML": (
        "a: [1\nb: 2",
        "c.yaml:2: not valid YAML: expected ',' or ']', but got ':'; check indentation, colons and quotes there",
    ),
    "tab": (
        "a:\n\tb: 1",
        ("c.yaml:2: not valid YAML: found character '\\t' that cannot start any token; check indentation, colons and "
        "quotes there"),
    ),
    "no such date": (
        changed("name: t", "name: 2024-13-45"),
        "c.yaml:1: not valid YAML: month must be in 1..12; check indentation, colons and quotes there",
    ),
    "refers to itself": ("name: &a [*a]\n", "c.yaml: it is nested without end, or refers to itself; write it out"),
    "nested without end": (
        "name: " + "[" * 500,
        "c.yaml: it is nested without end, or refers to itself; write it out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_problem_is_one_line(name: str) -> None:
    text, message = PROBLEMS[name]
    assert problem(text) == message


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "---\nname: b\n",
        "a: \x00b",
        "name: !!python/object:os.system x\n",
        changed("31001", "31001#x"),
        changed("127.0.0.1", "exa mple"),
        changed("127.0.0.1", "[::1"),
        changed("[1, 2]", "[{a: 1}]"),
        changed("output_tokens: 5", f"output_tokens: {'x' * 500}"),
        "seed: !!int abc\n",
    ],
)
def test_other_problems_are_one_line_too(text: str) -> None:
    assert problem(text).startswith("c.yaml:")


def lines_of_problem(text: str) -> int:
    """How many lines the message has; 0 if there is none. Any other exception than BadInput is a failure."""
    try:
        parse_sweep(text, "c.yaml")
    except BadInput as error:
        return len(str(error).splitlines())
    return 0


LINES = st.sampled_from(
    [*GOOD.splitlines(), "  - name: z", "    grid: {budget: }", "- 1", "? x", "seed: [", "a: &b", "*b"]
)


@given(st.lists(LINES, max_size=20))
def test_no_mix_of_lines_ends_in_a_traceback(lines: list[str]) -> None:
    assert lines_of_problem("\n".join(lines)) in (0, 1)


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_no_value_ends_in_a_traceback(value: str) -> None:
    assert lines_of_problem(GOOD.replace("name: t", f"name: {value}")) in (0, 1)


def unreadable(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_sweep(path)
    return str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "no.yaml"
    assert unreadable(missing) == f"{missing}: no such file; name a config such as configs/demo.yaml"
    assert unreadable(tmp_path) == f"{tmp_path}: cannot be read (Is a directory); name a readable YAML file"
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\x80\x81\xff")
    assert unreadable(binary) == f"{binary}: cannot be read (it is not UTF-8 text); name a readable YAML file"
    below = binary / "c.yaml"
    assert unreadable(below) == f"{below}: cannot be read (Not a directory); name a readable YAML file"


def test_the_text_comes_back_with_the_sweep(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD)
    sweep, text = read_sweep(path)
    assert (sweep.name, text) == ("t", GOOD)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "configs").glob("*.yaml")), ids=lambda path: path.stem
)
def test_shipped_configs_are_good(path: Path) -> None:
    sweep, text = read_sweep(path)
    assert re.search(rf"^name: {sweep.name}$", text, re.MULTILINE)


def load_problem(load: str) -> str:
    """What is said of a load, without file and line."""
    return problem(changed("load:\n  concurrency: [1]", f"load: {{{load}}}")).removeprefix("c.yaml:16: ")


def server_problem(server: str) -> str:
    server_text = f"    server: {{control: external, {server}}}\naxes"
    return problem(GOOD[: GOOD.index("    server:")] + server_text + GOOD[GOOD.index("axes") + 4 :])


LOADS = {
    "concurrency: saturat": "load.concurrency: input should be 'saturate' (got 'saturat'); write one of these",
    "concurrency: [1, saturate]": "load.concurrency: input should be a valid integer (got 'saturate'); write a whole number",
    "ramp_s: 3": "load: it asks for nothing; give concurrency, rate, or arrivals: {trace: FILE}",
    "rate: [2, 2.0]": "load.rate[1]: 2.0 stands twice; give each its own",
    "rate: fast": "load.rate: input should be a valid number (got 'fast'); write a number",
    "rate: -1": "load.rate: must be more than 0.0 (got -1); change it",
    "rate: 100000": "load.rate: 100000 a second until warmup_max_s + measure_max_s is more than 10,000,000 requests; "
    "lower one of them",
    "rate: 2, arrivals: gamma": "load.arrivals: gamma arrivals need burstiness (1 is poisson, less comes in bursts); add it",
    "rate: 2, arrivals: uniform": "load.arrivals: input should be 'constant', 'poisson' or 'gamma' (got 'uniform'); "
    "write one of these",
    "rate: 2, arrivals: {burstiness: 2}": "load.arrivals.burstiness: only gamma arrivals have it; add process: gamma",
    "rate: 2, arrivals: {process: gamma, burstiness: 0}": "load.arrivals.burstiness: must be more than 0.0 (got 0); change it",
    "rate: 2, arrivals: {process: gamma, burst: 2}": "load.arrivals.burst: unknown key (got 2); did you mean burstiness?",
    "rate: 2, arrivals: {trace: x}": "load.rate: a trace has its own rate; keep one of the two",
    "arrivals: {trace: x, process: poisson}": "load.arrivals.process: a trace is its own process; keep one of the two",
    "arrivals: {trace: x, unit: h}": "load.arrivals.unit: input should be 's' or 'ms' (got 'h'); write one of these",
    "concurrency: 1, max_in_flight: 3": "load.max_in_flight: it is of an open loop; add rate, or remove it",
    "concurrency: 1, arrivals: poisson": "load.arrivals: it is of an open loop; add rate, or remove it",
    "rate: 1, max_in_flight: 0": "load.max_in_flight: must be at least 1 (got 0); change it",
    "concurrency: 1, saturate: {max: 3}": "load.saturate: it needs concurrency: saturate; add that, or remove this",
    "concurrency: saturate, saturate: {start: 8, max: 3}": "load.saturate.max: it is below start (8); raise it",
    "concurrency: saturate, saturate: {gain: 1}": "load.saturate.gain: must be less than 1.0 (got 1); change it",
    "concurrency: 1, measure_requests_per_stream: 0, measure_min_requests: 0, measure_min_s: 0": "load.measure_min_s: "
    "nothing says when the window closes; give a time, or requests",
    "concurrency: 1, measure_min_s: 20, measure_max_s: 10": "load.measure_min_s: it is above measure_max_s (10); lower it",
    "concurrency: 1, ramp_s: 20, warmup_max_s: 10": "load.ramp_s: it is above warmup_max_s (10); lower it",
    "concurrency: 1, warmup_min_requests: -1": "load.warmup_min_requests: must be at least 0 (got -1); change it",
}


@pytest.mark.parametrize("load", LOADS)
def test_each_problem_of_a_load_is_one_line(load: str) -> None:
    assert load_problem(load) == LOADS[load]


def test_loads_of_both_kinds_may_stand_together() -> None:
    text = changed(
        "concurrency: [1]", "concurrency: saturate\n  rate: 2\n  arrivals: {process: gamma, burstiness: 0.5}"
    )
    load = parse_sweep(text, "c.yaml").load
    assert (load.concurrency, load.streams, load.rate) == ("saturate", [], [2.0])
    assert (load.arrivals.word, load.has_open_loop) == ("gamma0.5", True)


SERVERS = {
    "endpoint: 'http://a:1', endpoints: []": "platforms[0].server: it has endpoint and endpoints; keep one",
    "endpoints: []": "platforms[0].server.endpoints: it is empty; give at least one value, or leave the key out "
    "(1 more after this one)",
    "endpoints: [{url: 'http://a:1', weight: 0}]": "platforms[0].server.endpoints[0].weight: must be at least 1 (got 0); "
    "change it",
    "endpoints: [{url: 'http://a:1'}, {url: 'http://a:1'}]": "platforms[0].server.endpoints[1].url: http://a:1 stands "
    "twice; give each its own",
    "endpoints: [{url: 'a:1'}]": "platforms[0].server.endpoints[0].url: an endpoint is a URL such as "
    "http://127.0.0.1:30000 (got 'a:1') (1 more after this one)",
    "endpoints: [{uri: 'http://a:1'}]": "platforms[0].server.endpoints[0].uri: unknown key (got 'http://a:1'); did you "
    "mean url? (2 more after this one)",
}


@pytest.mark.parametrize("server", SERVERS)
def test_each_problem_of_several_endpoints_is_one_line(server: str) -> None:
    assert server_problem(server) == f"c.yaml:4: {SERVERS[server]}"


def test_the_first_of_several_endpoints_is_the_endpoint() -> None:
    server = "control: external\n      endpoints: [{url: 'http://a:1/'}, {url: 'http://b:1', weight: 3}]"
    text = changed("control: process\n      endpoint: http://127.0.0.1:31001\n      command: [x]", server)
    found = parse_sweep(text, "c.yaml").platforms[0].server
    assert found.endpoint == "http://a:1"
    assert [(target.url, target.weight) for target in found.targets] == [("http://a:1", 1), ("http://b:1", 3)]


def test_the_most_workers_are_no_fewer_than_those_at_first() -> None:
    more = "clients: {workers_per_platform: 4, max_workers_per_platform: 2}\n"
    assert problem(GOOD + more) == (
        "c.yaml:18: clients.max_workers_per_platform: it is below workers_per_platform (4); raise it"
    )
    assert parse_sweep(GOOD + "clients: {workers_per_platform: 4}\n", "c").clients.most_workers == 4


WORKLOADS = {
    "[{output_tokens: 5}]": "workloads[0]: missing; write the prompt lengths, or name a dataset",
    "[{context_tokens: [9, 50], output_tokens: 5, shared_prefix: 9}]": "workloads[0].shared_prefix: leave each prompt a part",
    "[{prompt_source: d.jsonl, output_tokens: 5, shared_prefix: 0.5}]": "workloads[0].shared_prefix: leave each prompt a",
    "[{context_tokens: 9, output_tokens: 5, extra_body: {stream: false}}]": "workloads[0].extra_body.stream: the load",
    "[{context_tokens: 9, output_tokens: 5, turns: 0}]": "workloads[0].turns: ",
    "[{context_tokens: [], output_tokens: 5}]": "workloads[0].context_tokens: ",
    "[{context_tokens: [9, 9], output_tokens: 5}]": "workloads[0].context_tokens[1]: 9 stands twice",
}


def workload_of(text: str) -> str:
    head, _, rest = GOOD.partition("workloads:")
    return f"{head}workloads: {text}\nload:{rest.partition('load:')[2]}"


@pytest.mark.parametrize("text", WORKLOADS)
def test_each_problem_of_a_workload_is_one_line(text: str) -> None:
    said = problem(workload_of(text))
    assert WORKLOADS[text] in said
    assert "\n" not in said


def test_a_workload_says_what_its_prompts_are() -> None:
    text = "[{prompt_source: d.jsonl, output_tokens: 5, turns: 3, think_time_s: 2, chat_template_kwargs: {a: [1]}}]"
    (workload,) = parse_sweep(workload_of(text), "c.yaml").workloads
    assert workload.contexts == [None]
    assert workload.prompts == PromptSettings("d.jsonl", turns=3, think_time_s=2, template_kwargs={"a": [1]})
    shared = parse_sweep(workload_of("[{context_tokens: 1000, output_tokens: 5, shared_prefix: 0.5}]"), "c")
    assert shared.workloads[0].prompts.shared_tokens(1000) == 500
    assert PromptSettings(shared_prefix=700).shared_tokens(1000) == 700
    assert PromptSettings(shared_prefix=700).shared_prompt(1000) == 0.7
    assert PromptSettings(turns=2).shared_prompt(1000) is None
