"""A small deterministic tokenizer with an exact round trip, about four characters a token on English text.

It stands in for the model's own one, whose files a user without a GPU need not have. A piece is at most six bytes
of UTF-8 and its id is that very byte string as a number (times 8, plus its length), so ids need no vocabulary,
are the same in every process and fit an exact JSON number. Ids divisible by 8 are the special tokens.
"""

import re
from collections.abc import Iterable

END_OF_THINKING = "</think>"
END_OF_TURN = "<|im_end|>"
SPECIAL_TOKENS = (
    END_OF_TURN,
    "<think>",
    END_OF_THINKING,
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
)
END_OF_TURN_ID = 8  # the first of them

_MAX_TABLE = 200_000
_PIECE = re.compile(
    "|".join(re.escape(token) for token in SPECIAL_TOKENS)
    + r"| ?[A-Za-z]{1,5}| ?[0-9]{1,3}| ?[!-/:;=-@\[-`{-~]{1,2}|[ \t\r\n]{1,6}|.",
    re.DOTALL,
)
_SPECIAL_IDS = {token: 8 * (index + 1) for index, token in enumerate(SPECIAL_TOKENS)}
_SPECIAL_TEXTS = {number: token for token, number in _SPECIAL_IDS.items()}


class _Ids(dict[str, int]):
    """Piece -> id, computed once a piece; emptied when hostile text would make it grow without bound."""

    def __missing__(self, piece: str) -> int:
        if len(self) >= _MAX_TABLE:
            self.clear()
            self.update(_SPECIAL_IDS)
        raw = piece.encode("utf-8", "surrogatepass")
        number = self[piece] = int.from_bytes(raw) * 8 + len(raw)
        return number


_ids = _Ids(_SPECIAL_IDS)


def pieces(text: str) -> list[str]:
    """`text` cut into tokens; joined they are `text` again."""
    return _PIECE.findall(text)


def encode(text: str) -> list[int]:
    """Token ids of `text`."""
    ids = _ids
    return [ids[piece] for piece in _PIECE.findall(text)]


def decode(ids: Iterable[int]) -> str:
    """The text of `ids`. Raises ValueError for a number that is no token of this tokenizer."""
    return "".join(_piece_of(number) for number in ids)


def ids_of(token_pieces: Iterable[str]) -> list[int]:
    """Ids of pieces that `pieces` made."""
    ids = _ids
    return [ids[piece] for piece in token_pieces]


def _piece_of(number: int) -> str:
    special = _SPECIAL_TEXTS.get(number)
    if special is not None:
        return special
    size = number % 8
    if not 1 <= size <= 6 or not 0 <= number // 8 < 256**size:
        raise ValueError(f"{number} is no token id")
    return (number // 8).to_bytes(size).decode("utf-8", "surrogatepass")
