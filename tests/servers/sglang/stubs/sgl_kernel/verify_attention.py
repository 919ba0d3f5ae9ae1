"""Lets SGLang's `torch_native` attention serve the verify step of speculation, which it does not know.

For a chain of drafts that step is an ordinary extension of the sequence: the drafts are its new tokens, each looking at
all before it. The class is changed when SGLang imports it.
"""

import copy
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

ATTENTION_MODULE = "sglang.srt.layers.attention.torch_native_backend"


def as_extension(batch: Any) -> Any:
    """A verify batch as a batch that extends each sequence by its drafts."""
    drafts = batch.spec_info.draft_token_num
    extension = copy.copy(batch)
    extension.extend_prefix_lens = batch.seq_lens
    extension.extend_seq_lens = torch.full_like(batch.seq_lens, drafts)
    extension.seq_lens = batch.seq_lens + drafts
    return extension


def patch(module: ModuleType) -> None:
    original = module.TorchNativeAttnBackend.forward_extend

    def forward_extend(
        self: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if batch.forward_mode.is_target_verify():
            batch = as_extension(batch)
        return original(self, q, k, v, layer, batch, *args, **kwargs)

    module.TorchNativeAttnBackend.forward_extend = forward_extend


class PatchingFinder(MetaPathFinder):
    """Finds that one module as usual, and patches it after its code has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != ATTENTION_MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_patch(module: ModuleType) -> None:
            run(module)
            patch(module)

        spec.loader.exec_module = run_and_patch
        return spec


def patch_on_import() -> None:
    sys.meta_path.insert(0, PatchingFinder())
