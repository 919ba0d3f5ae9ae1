"""The tools that are compared: what starts each on the sink's streams, and what it says of them afterwards."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.work import MODEL, Work

PROMPT_TOKENS = 60
_ROOT = Path(__file__).resolve().parents[2]
# SGLang and vLLM import torchvision, of which a client needs nothing; these stand in for it.
_STUBS = {"PYTHONPATH": str(_ROOT / "tests" / "servers" / "sglang" / "stubs")}


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tools and their stand-in tokenizer are, absolute; `out` is the folder of one run."""

    peers: Path
    sglang: Path
    tokenizer: Path
    out: Path


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool reports, in ms."""

    ttft_mean_ms: float
    gap_p99_ms: float


@dataclass(frozen=True, slots=True)
class Tool:
    """A load generator. `package` is what its version is asked of, in the environment `env_name` (None: our own)."""

    name: str
    env_name: str | None
    package: str
    command: Callable[[Places, Work, str], list[str]]
    said: Callable[[Path], Said]
    environment: Mapping[str, str] = field(default_factory=dict)
    has_many_processes: bool = False

    def home(self, places: Places) -> Path | None:
        """Its environment's folder."""
        if self.env_name is None:
            return None
        return places.sglang if self.env_name == "." else places.peers / self.env_name


def _ours(_: Places, work: Work, url: str) -> list[str]:
    return [sys.executable, "-m", "bench.client", "raw", url.rpartition(":")[2], work.to_json()]


def _ours_said(out: Path) -> Said:
    result = json.loads((out / "stdout").read_text(encoding="utf-8").splitlines()[-1])
    return Said(result["ttft_ms"]["mean"], result["gap_ms"]["p99"])


def _sglang_options(places: Places, work: Work, url: str) -> list[str]:
    options = {
        "--backend": "sglang-oai-chat",
        "--base-url": url,
        "--model": MODEL,
        "--tokenizer": places.tokenizer,
        "--dataset-name": "random-ids",
        "--random-input-len": PROMPT_TOKENS,
        "--random-output-len": work.chunks,
        "--random-range-ratio": "1.0",
        "--num-prompts": work.requests,
        "--max-concurrency": work.streams,
        "--warmup-requests": 0,
        "--output-file": places.out / "result.jsonl",
        "--seed": 1,
    }
    return [*_words(options), "--disable-tqdm"]


def _sglang_rust(places: Places, work: Work, url: str) -> list[str]:
    python = places.sglang / "bin" / "python"
    return [str(python), "-m", "sglang.benchmark.rust_client", *_sglang_options(places, work, url)]


def _sglang_python(places: Places, work: Work, url: str) -> list[str]:
    python = places.peers / "sglang" / "bin" / "python"
    return [str(python), "-m", "sglang.benchmark.serving", *_sglang_options(places, work, url)]


def _sglang_said(out: Path) -> Said:
    result = json.loads((out / "result.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return Said(result["mean_ttft_ms"], result["p99_itl_ms"])


def _vllm(places: Places, work: Work, url: str) -> list[str]:
    options = {
        "--backend": "openai-chat",
        "--base-url": url,
        "--endpoint": "/v1/chat/completions",
        "--model": MODEL,
        "--tokenizer": places.tokenizer,
        "--dataset-name": "random",
        "--random-input-len": PROMPT_TOKENS,
        "--random-output-len": work.chunks,
        "--num-prompts": work.requests,
        "--max-concurrency": work.streams,
        "--ready-check-timeout-sec": 0,
        "--num-warmups": 0,
        "--percentile-metrics": "ttft,itl",
        "--metric-percentiles": 99,
        "--result-dir": places.out,
        "--result-filename": "result.json",
        "--seed": 1,
    }
    python = places.peers / "vllm" / "bin" / "python"
    program = [str(python), "-m", "vllm.entrypoints.cli.main", "bench", "serve"]
    return [*program, *_words(options), "--save-result", "--disable-tqdm"]


def _vllm_said(out: Path) -> Said:
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return Said(result["mean_ttft_ms"], result["p99_itl_ms"])


def _aiperf(places: Places, work: Work, url: str) -> list[str]:
    options = {
        "--model": MODEL,
        "--url": url,
        "--endpoint-type": "chat",
        "--tokenizer": places.tokenizer,
        "--concurrency": work.streams,
        "--request-count": work.requests,
        "--synthetic-input-tokens-mean": PROMPT_TOKENS,
        "--synthetic-input-tokens-stddev": 0,
        "--output-tokens-mean": work.chunks,
        "--output-tokens-stddev": 0,
        "--artifact-dir": places.out,
        "--ui-type": "none",
        "--random-seed": 1,
    }
    return [str(places.peers / "aiperf" / "bin" / "aiperf"), "profile", *_words(options), "--streaming"]


def _aiperf_said(out: Path) -> Said:
    result = json.loads((out / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    # its inter-token latency is a mean for each request; between chunks is what the others report
    return Said(result["time_to_first_token"]["avg"], result["inter_chunk_latency"]["p99"])


def _guidellm(places: Places, work: Work, url: str) -> list[str]:
    options = {
        "--backend": f"kind=openai_http,target={url},model={MODEL}",
        "--tokenizer": f"kind=hf_auto,model={places.tokenizer}",
        "--profile": f"kind=concurrent,streams={work.streams}",
        "--constraint": f"kind=max_requests,count={work.requests}",
        "--data": f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={work.chunks}",
        "--output": f"kind=json,path={places.out}/result.json",
    }
    program = places.peers / "guidellm" / "bin" / "guidellm"
    return [str(program), "run", *_words(options), "--disable-console"]


def _guidellm_said(out: Path) -> Said:
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    metrics = result["benchmarks"][0]["metrics"]
    gaps = metrics["inter_token_latency_ms"]["successful"]["percentiles"]
    return Said(metrics["time_to_first_token_ms"]["successful"]["mean"], gaps["p99"])


def _words(options: Mapping[str, object]) -> list[str]:
    return [str(word) for pair in options.items() for word in pair]


_OFFLINE = {"HF_HUB_OFFLINE": "1"}
TOOLS = (
    Tool("loadgen", None, "loadgen", _ours, _ours_said),
    Tool("sglang rust client", ".", "sglang", _sglang_rust, _sglang_said, _OFFLINE),
    Tool("sglang bench_serving", "sglang", "sglang", _sglang_python, _sglang_said, _OFFLINE | _STUBS),
    Tool(
        "vllm bench serve",
        "vllm",
        "vllm",
        _vllm,
        _vllm_said,
        _OFFLINE | _STUBS | {"VLLM_NO_USAGE_STATS": "1"},
    ),
    # offline, it looks for its tokenizer by a name on the hub only
    Tool("aiperf", "aiperf", "aiperf", _aiperf, _aiperf_said, has_many_processes=True),
    Tool("guidellm", "guidellm", "guidellm", _guidellm, _guidellm_said, _OFFLINE, has_many_processes=True),
)
