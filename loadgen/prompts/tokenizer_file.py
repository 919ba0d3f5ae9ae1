"""A tokenizer from a local tokenizer.json (Hugging Face's format), by the optional package `tokenizers`."""

from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.errors import BadInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TokenizerFile:
    """Encodes text alone: no special tokens are added; those of the chat template are measured apart."""

    def __init__(self, path: str) -> None:
        """Raises BadInput when the package is not installed or the file is none."""
        self._tokenizer = _read(path)

    def encode(self, text: str) -> list[int]:
        """Token ids. May be called from several threads."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _read(path: str) -> "Tokenizer":
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - optional
    except ImportError as error:
        raise BadInput(
            f"tokenizer {path}: the package that reads it is not installed; pip install 'loadgen[tokenizer]', or leave "
            "the key out: the server counts then"
        ) from error
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"tokenizer {path}: cannot be read ({reason}); name a tokenizer.json") from error
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the package raises plain Exception
        raise BadInput(f"tokenizer {path}: not a tokenizer.json ({error}); name the model's own") from error
