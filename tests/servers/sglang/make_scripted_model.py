"""Writes a servable Llama that says what `scenes.py` scripts, thinking first: `make_scripted_model.py OUT`.

It is a real checkpoint and a real tokenizer, and deterministic up to temperature 1. A token's embedding is a random
sign vector, and the output row of its successor holds that vector, so each token names the next one. The chat template
puts a marker of the scene before the thought; one attention head looks only at that marker and copies its number into
every later position, which decides what follows `<think>` and `</think>`. A token without successor leads to the end.
"""

import re
import sys
from pathlib import Path

import torch
from scenes import SCENES, Scene
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BOS, END, START, THINK, END_THINK = "<|bos|>", "<|im_end|>", "<|im_start|>", "<think>", "</think>"
CONTEXT_TOKENS = 32768

# Layout of the hidden state: what token it is, a constant, "I am a marker", the marker's scene, the scene in force.
IDENTITY = 448
CONSTANT, MARKER = 448, 449
SCENE_OF_MARKER, SCENE_IN_FORCE = 456, 480
HIDDEN = 512
HEAD = 64
SLOWEST_ROTARY = (
    HEAD // 2 - 1
)  # the head's dimension that positions turn least; with a huge theta, not at all

SUCCESSOR_LOGIT, SCENE_LOGIT, END_LOGIT = 40.0, 10.0, 20.0


def byte_letters() -> dict[int, str]:
    """GPT-2's printable letter for each byte, as the byte-level decoder expects it."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + n) for n, b in enumerate(rest)}}


def pieces(text: str) -> list[bytes]:
    """Words with the space before them; those beyond ASCII in pairs of bytes, which splits code points."""
    found: list[bytes] = []
    for word in re.findall(r"\s*\S+|\s+", text):
        raw = word.encode()
        found += [raw] if raw.isascii() else [raw[i : i + 2] for i in range(0, len(raw), 2)]
    return found


def marker(scene: Scene) -> str:
    return f"<|scene:{scene.name}|>"


class Script:
    """The vocabulary, and who follows whom. A token of a text is unique: it carries a hidden number (`§§7`)."""

    def __init__(self) -> None:
        self.letters = byte_letters()
        self.specials = [BOS, END, START, *map(marker, SCENES)]
        names = [*self.specials, THINK, END_THINK, *(self.letters[byte] for byte in range(256))]
        self.vocab = {name: number for number, name in enumerate(names)}
        self.successor: dict[int, int] = {}
        self.scene_successor: list[tuple[int, int, int]] = []  # token, scene, next token

    def chain(self, text: str, end: int | None) -> int:
        """Adds the text; its last token leads to `end`, or to its own first token. Returns the first token."""
        numbers = []
        for piece in pieces(text):
            name = "".join(self.letters[byte] for byte in piece) + f"§§{len(self.vocab)}"
            numbers.append(self.vocab.setdefault(name, len(self.vocab)))
        self.successor.update(zip(numbers, [*numbers[1:], numbers[0] if end is None else end], strict=True))
        return numbers[0]

    def add(self, number: int, scene: Scene) -> None:
        """Adds both texts of a scene. After its end, an ignored EOS leads into the endless scene."""
        think, end_think, end = self.vocab[THINK], self.vocab[END_THINK], self.vocab[END]
        self.scene_successor.append((think, number, self.chain(scene.thought, end_think)))
        answer = self.chain(scene.answer, None if scene.endless else end)
        self.scene_successor.append((end_think, number, answer))
        if scene.endless:
            self.successor[end] = answer


def chat_template() -> str:
    """Jinja: messages as usual, then the marker of the scene that the last user message selects, then `<think>`."""
    choice = "".join(
        f"{{% {'el' if i else ''}if '{scene.word}' in last.text %}}{marker(scene)}"
        if scene.word
        else f"{{% else %}}{marker(scene)}"
        for i, scene in enumerate(SCENES)
    )
    return (
        "{% set last = namespace(text='') %}"
        "{% for m in messages %}"
        "{% if m['role'] == 'user' %}{% set last.text = m['content'] %}{% endif %}"
        "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n" + choice + "{% endif %}"
        "<think>{% if thinking is defined and not thinking %}</think>{% endif %}"
        "{% endif %}"
    )


def tokenizer(script: Script) -> PreTrainedTokenizerFast:
    """Byte by byte for any prompt; the decoder drops the hidden numbers of the scripted tokens."""
    core = Tokenizer(models.BPE(vocab=script.vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.Sequence([decoders.Replace(Regex("§§[0-9]+"), ""), decoders.ByteLevel()])
    core.add_special_tokens([AddedToken(name, special=True) for name in script.specials])
    # Thought marks are visible text: the server's reasoning parser looks for them in it.
    core.add_tokens([AddedToken(name, special=False, normalized=False) for name in (THINK, END_THINK)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=BOS, eos_token=END, pad_token=END, chat_template=chat_template()
    )


def config(tokens: int, end: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=tokens,
        hidden_size=HIDDEN,
        intermediate_size=HEAD,
        num_hidden_layers=1,
        num_attention_heads=HIDDEN // HEAD,
        num_key_value_heads=2,
        head_dim=HEAD,
        max_position_embeddings=CONTEXT_TOKENS,
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},
        bos_token_id=0,
        eos_token_id=end,
        pad_token_id=end,
        tie_word_embeddings=False,
    )


def embeddings(script: Script) -> torch.Tensor:
    rows = torch.zeros(len(script.vocab), HIDDEN)
    rows[:, :IDENTITY] = torch.sign(torch.randn(len(script.vocab), IDENTITY))
    rows[:, CONSTANT] = 1
    for number, scene in enumerate(SCENES):
        row = rows[script.vocab[marker(scene)]]
        row[MARKER] = 1
        row[SCENE_OF_MARKER + number] = 1
    return rows


def output_rows(script: Script, embedding: torch.Tensor) -> torch.Tensor:
    """Each row scores its token: high where the hidden state is a predecessor's, and in the right scene."""
    identity = embedding[:, :IDENTITY] * (SUCCESSOR_LOGIT / IDENTITY)
    rows = torch.zeros(len(script.vocab), HIDDEN)
    for token, following in script.successor.items():
        rows[following, :IDENTITY] += identity[token]
    for token, scene, following in script.scene_successor:
        rows[following, :IDENTITY] += identity[token]
        rows[following, SCENE_IN_FORCE + scene] += SCENE_LOGIT
    rows[script.vocab[END], CONSTANT] += END_LOGIT
    return rows


def model(script: Script) -> LlamaForCausalLM:
    torch.manual_seed(0)
    llama = LlamaForCausalLM(config(len(script.vocab), script.vocab[END]))
    layer = llama.model.layers[0]
    embedding = embeddings(script)
    with torch.no_grad():
        for part in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
            part.weight.zero_()
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        # Query 20 everywhere, key 20 at the marker and 0 elsewhere: score 400/8 = 50, so nothing else is looked at.
        layer.self_attn.q_proj.weight[SLOWEST_ROTARY, CONSTANT] = 20
        layer.self_attn.k_proj.weight[SLOWEST_ROTARY, MARKER] = 20
        for number in range(len(SCENES)):
            layer.self_attn.v_proj.weight[number, SCENE_OF_MARKER + number] = 1
            layer.self_attn.o_proj.weight[SCENE_IN_FORCE + number, number] = 1
        llama.model.embed_tokens.weight.copy_(embedding)
        llama.lm_head.weight.copy_(output_rows(script, embedding))
    return llama.to(torch.bfloat16)


def main(out: Path) -> None:
    script = Script()
    for number, scene in enumerate(SCENES):
        script.add(number, scene)
    tokenizer(script).save_pretrained(out)
    model(script).save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
