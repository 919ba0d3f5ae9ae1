"""Secrets do not reach what is written, and what is no secret stays."""

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.redact import is_secret, mask_command, mask_env, mask_info, mask_text, without_key

KEY = "s3cr3t-Value"


@pytest.mark.parametrize(
    "name",
    ["api_key", "API-KEY", "apikey", "admin_api_key", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "password", "passwd",
     "AWS_SECRET_ACCESS_KEY", "ssl_keyfile_password", "client_secret", "--hf-token", "api_keys", "Authorization"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)
    assert mask_env({name: KEY}) == {name: "***"}
    assert mask_info({name: KEY}) == {name: "***"}
    assert mask_info([{"deep": {name: [KEY, {"x": KEY}]}}]) == [{"deep": {name: "***"}}]


@pytest.mark.parametrize(
    "name",
    ["max_total_num_tokens", "tokenizer_path", "tokenizer_mode", "max_tokens", "key", "ssl_keyfile", "keyboard",
     "num_reserved_decode_tokens", "tokens", "secretary", "monkey"],
)  # fmt: skip
def test_names_that_only_look_like_secrets(name: str) -> None:
    assert not is_secret(name)
    assert mask_env({name: "5"}) == {name: "5"}
    assert mask_command([f"--{name}", "5", f"--{name}=5"]) == [f"--{name}", "5", f"--{name}=5"]


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        (["x", "--api-key", KEY, "--port", "1"], ["x", "--api-key", "***", "--port", "1"]),
        (["x", f"--api-key={KEY}"], ["x", "--api-key=***"]),
        (["x", "--admin-api-key", "--odd-value"], ["x", "--admin-api-key", "***"]),
        (["env", f"HF_TOKEN={KEY}", "x"], ["env", "HF_TOKEN=***", "x"]),
        (
            ["docker", "run", "-e", f"AWS_SECRET_ACCESS_KEY={KEY}"],
            ["docker", "run", "-e", "AWS_SECRET_ACCESS_KEY=***"],
        ),
        (["bash", "-c", f"x --api-key {KEY} --port 1"], ["bash", "-c", "x --api-key *** --port 1"]),
        (["bash", "-c", f"A_TOKEN='{KEY} two' x"], ["bash", "-c", "A_TOKEN=*** x"]),
        (["curl", "-H", f"Authorization: Bearer {KEY}"], ["curl", "-H", "Authorization: Bearer ***"]),
        (["x", f"http://me:{KEY}@h:1/p"], ["x", "http://***@h:1/p"]),
        (["x", "--api-key"], ["x", "--api-key"]),
        ([], []),
    ],
)
def test_command_lines(command: list[str], masked: list[str]) -> None:
    assert mask_command(command) == masked


def test_commands_inside_settings_are_masked_as_text_and_as_words() -> None:
    info = {
        "launch_command": f"python -m x --api-key {KEY} --tp 8",
        "argv": ["x", "--hf-token", KEY],
        "max_total_num_tokens": 65536,
        "token": 5,
        "api_key": None,
        "password": "",
        "models": [{"name": "kimi", "hosts": ["a", "b"]}],
    }
    masked = mask_info(info)
    assert KEY not in json.dumps(masked)
    assert masked["launch_command"] == "python -m x --api-key *** --tp 8"
    assert masked["argv"] == ["x", "--hf-token", "***"]
    untouched = ("max_total_num_tokens", "token", "api_key", "password", "models")
    assert {key: masked[key] for key in untouched} == {key: info[key] for key in untouched}


def test_variables_that_carry_flags_are_masked_within() -> None:
    assert mask_env({"EXTRA_ARGS": f"--api-key {KEY}"}) == {"EXTRA_ARGS": "--api-key ***"}
    assert mask_env({"PATH": "/bin", "HTTP_PROXY": f"http://u:{KEY}@p:3"}) == {
        "PATH": "/bin",
        "HTTP_PROXY": "http://***@p:3",
    }


SECRETS = st.text(st.characters(categories=["L", "N"]), min_size=1).map(lambda text: f"zz{text}zz")


@given(SECRETS, st.sampled_from(["--api-key", "--hf-token", "--ssl-keyfile-password"]))
def test_no_value_of_a_secret_flag_survives_in_any_spelling(secret: str, flag: str) -> None:
    words = ["x", flag, secret, f"{flag}={secret}"]
    assert secret not in " ".join(mask_command(words))
    assert secret not in mask_text(shlex.join(words))
    assert secret not in json.dumps(mask_info({"a": [{"b": words}, shlex.join(words)]}), ensure_ascii=False)


def test_masking_takes_linear_work() -> None:
    for piece in ("a-", "--", "://", "--token", "token=", 'secret="', "authorization:", "x@", "--a "):
        mask_text(piece * 50_000)  # minutes, if a pattern looked at a word again for each of its letters


def test_our_own_key_is_masked_wherever_a_server_echoes_it():
    assert without_key("bad key sk-123 given", "sk-123") == "bad key *** given"
    assert without_key(b'{"error": "sk-123"}', "sk-123") == b'{"error": "***"}'
    assert without_key("nothing", None) == "nothing"
