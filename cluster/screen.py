"""Text from servers, logs and processes made harmless for a terminal and for a table."""

import unicodedata

_DROPPED = frozenset({"Cc", "Cf", "Cs"})


def harmless(text: str) -> str:
    """`text` without characters that control a screen or cannot be encoded; line ends and tabs stay."""
    return "".join(
        letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in _DROPPED
    )
