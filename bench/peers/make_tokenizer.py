"""A tokenizer made on the spot, for tools that will not start without one: `python make_tokenizer.py DIR`.

Run by the interpreter of the SGLang environment, which has `tokenizers` and `transformers`. One word is one token.
"""

import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
_WORDS = 4096
_UNKNOWN = "<unk>"
_SPECIAL = {"unk_token": _UNKNOWN, "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}


def main(folder: str) -> None:
    """Writes the tokenizer's files into `folder`."""
    words = [_UNKNOWN, "<s>", "</s>", *(f"w{number}" for number in range(_WORDS))]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, _UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=1 << 20, chat_template=_TEMPLATE, **_SPECIAL
    )
    fast.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
