"""Stands in for SGLang's compiled kernels, of which there is no CPU build to install.

Plain serving with `torch_native` attention calls none of them. NGRAM speculation calls the few of `cpu_ops.py`, which
are written in torch, and needs the attention of `verify_attention.py`. Any other kernel raises when it is called.
"""

from collections.abc import Callable
from typing import Never

from dummies import answer_for

from sgl_kernel.cpu_ops import (
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    verify_tree_greedy_cpu,
)
from sgl_kernel.verify_attention import patch_on_import

__all__ = [
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
]
__version__ = "0.4.10"

answer_for(__name__)
patch_on_import()


def __getattr__(name: str) -> Callable[..., Never]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing_kernel(*args: object, **kwargs: object) -> Never:
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in for CPUs")

    return missing_kernel
