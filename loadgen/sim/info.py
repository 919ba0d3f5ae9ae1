"""What the server tells about itself: models, arguments, load. Keys and values as SGLang 0.5.23 has them.

Beside them /server_info has one key of its own, `loadgen_sim`, which says that this is a simulation.
"""

import datetime as dt
from typing import Any

from loadgen.sim.engine import Engine
from loadgen.sim.prefix_cache import PAGE_TOKENS
from loadgen.sim.scheduler import CHUNKED_PREFILL_TOKENS
from loadgen.sim.settings import Settings

VERSION = "0.5.23"
_OURS = ("profile", "time_scale", "sim_startup_s", "scenario")
_GRAPHS = ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend")
_GB_PER_TOKEN = 70_272 / 2**30  # Kimi K2's compressed KV cache: 61 layers x 576 values of 2 bytes


class Info:
    """Describes one engine. `status` is "starting", "ready" or "draining"."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        self.status = "starting"

    def models(self) -> dict[str, Any]:
        """/v1/models."""
        model = {
            "id": self._settings.model,
            "object": "model",
            "created": int(self._engine.unix_s(self._engine.now_s())),
            "owned_by": "sglang",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._settings.context_tokens,
        }
        return {"object": "list", "data": [model]}

    def model(self) -> dict[str, Any]:
        """/model_info."""
        return {
            "model_path": self._settings.args["model_path"],
            "served_model_name": self._settings.model,
            "tokenizer_path": self._settings.args["model_path"],
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "load_format": "auto",
            "reasoning_parser": self._settings.args["reasoning_parser"],
            "tool_call_parser": None,
            "disaggregation_mode": "null",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "kimi_k25",
            "architectures": ["KimiK25ForConditionalGeneration"],
        }

    def server(self) -> dict[str, Any]:
        """/server_info."""
        arguments = self._arguments()
        seconds = self._settings.args["sim_startup_s"]
        whole = {
            **arguments,
            "launch_command": self._settings.launch_command,
            "status": self.status,
            "max_total_num_tokens": self._settings.kv_tokens,
            "max_req_input_len": self._settings.context_tokens - 6,
            "startup_time": {
                "load_weight": 0.8 * seconds,
                "kv_cache_allocation": 0.1 * seconds,
                "scheduler_e2e": 0.95 * seconds,
                "cuda_graph": dict.fromkeys(_GRAPHS, 0.0),
                "tokenizer_e2e": seconds,
            },
            "kv_events": None,
            "internal_states": [self._internal(arguments)],
            "version": VERSION,
            "frontend": "python",
            "loadgen_sim": self._simulation(),
        }
        if self._settings.env_vars is not None:
            whole["env_vars"] = dict(self._settings.env_vars)
        return whole

    def loads(self) -> dict[str, Any]:
        """/v1/loads."""
        scheduler, gauges = self._engine.scheduler, self._engine.stats.gauges
        now_s = self._engine.unix_s(self._engine.now_s())
        used = scheduler.used_tokens
        waiting = len(scheduler.waiting)
        rank = {
            "timestamp": now_s,
            "dp_rank": 0,
            "num_running_reqs": len(scheduler.running) + len(scheduler.prefilling),
            "num_waiting_reqs": waiting,
            "num_waiting_uncached_tokens": sum(len(seq.prompt_ids) for seq in scheduler.waiting),
            "num_used_tokens": used,
            "num_total_tokens": used,
            "num_active_tokens": used,
            "num_prealloc_ready_tokens": 0,
            "max_total_num_tokens": self._settings.kv_tokens,
            "max_running_requests": self._settings.args["max_running_requests"],
            "token_usage": round(min(1.0, used / self._settings.kv_tokens), 4),
            "gen_throughput": round(gauges.gen_throughput, 2),
            "cache_hit_rate": round(gauges.cache_hit_rate, 4),
            "utilization": round(len(scheduler.running) / self._settings.args["max_running_requests"], 4),
            "total_prefill_uncached_tokens": self._engine.stats.prefill_computed,
            "memory": self._memory_gb(),
            "queues": {"waiting": waiting, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
        }
        return {
            "timestamp": dt.datetime.fromtimestamp(now_s, dt.UTC).isoformat(),
            "version": VERSION,
            "accelerator": self._settings.profile.gpu,
            "num_accelerators": self._settings.args["tp_size"],
            "loads": [rank],
        }

    def _arguments(self) -> dict[str, Any]:
        args = {name: value for name, value in self._settings.args.items() if name not in _OURS}
        return {
            **args,
            "tokenizer_path": args["model_path"],
            "load_format": "auto",
            "dtype": "auto",
            "kv_cache_dtype": "auto",
            "page_size": PAGE_TOKENS,
            "chunked_prefill_size": CHUNKED_PREFILL_TOKENS,
            "schedule_policy": "fcfs",
            "dp_size": 1,
            "pp_size": 1,
            "ep_size": 1,
            "enable_mixed_chunk": False,
            "disable_cuda_graph": False,
            "watchdog_timeout": 300,
            "weight_version": "default",
        }

    def _internal(self, arguments: dict[str, Any]) -> dict[str, Any]:
        state = {
            **arguments,
            "world_size": self._settings.args["tp_size"],
            "effective_max_running_requests_per_dp": self._settings.args["max_running_requests"],
            "last_gen_throughput": self._engine.stats.gauges.gen_throughput,
            "memory_usage": self._memory_usage(),
            "decode_cuda_graph_bs": [],
            "decode_cuda_graph_memory_gb": 0.0,
        }
        length = self._engine.stats.accept_length
        return state if length is None else {**state, "avg_spec_accept_length": round(length, 3)}

    def _memory_usage(self) -> dict[str, Any]:
        memory = self._memory_gb()
        return {
            "weight": memory["weight_gb"],
            "kvcache": memory["kv_cache_gb"],
            "startup_available": round(self._settings.profile.memory_gb, 3),
            "token_capacity": self._settings.kv_tokens,
            "token_capacity_swa": None,
            "graph": dict.fromkeys(_GRAPHS, 0.0),
        }

    def _memory_gb(self) -> dict[str, Any]:
        return {
            "weight_gb": self._settings.profile.weight_gb,
            "kv_cache_gb": round(self._settings.kv_tokens * _GB_PER_TOKEN, 3),
            "graph_gb": 0.0,
            "token_capacity": self._settings.kv_tokens,
        }

    def _simulation(self) -> dict[str, Any]:
        return {
            "simulated": True,
            "profile": self._settings.profile.name,
            "time_scale": self._settings.time_scale,
            "scenario": self._settings.args["scenario"],
            "lag_p99_ms": round(self._engine.lag.p99_ms, 3),
            "lag_max_ms": round(self._engine.lag.max_ms, 3),
        }
