"""What a workload says about its prompts, as plain data that goes over process borders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class LengthSource(StrEnum):
    """How the lengths of prompts were made."""

    TOKENIZER = "tokenizer"  # the server's own
    TOKENIZER_FILE = "tokenizer_file"
    USAGE = "usage"  # calibrated on usage.prompt_tokens; within 1 %
    DATASET = "dataset"  # as long as the data has it


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """`shared_prefix`: below 1 a share of the context, else tokens. `turn_tokens`: user text of each later turn."""

    source: str = "builtin"
    tokenizer: str | None = None
    shared_prefix: float = 0
    turns: int = 1
    turn_tokens: int = 64
    think_time_s: float = 0
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def shared_tokens(self, context_tokens: int) -> int:
        """Tokens that all prompts of a cell of this context length begin with."""
        share = self.shared_prefix
        return round(share * context_tokens) if share < 1 else round(share)

    def shared_prompt(self, context_tokens: int | None) -> float | None:
        """The share of a prompt that a prefix cache may hold by intent; None in a conversation: it depends on answers."""
        if self.turns > 1:
            return None
        return self.shared_tokens(context_tokens) / context_tokens if context_tokens else 0.0
