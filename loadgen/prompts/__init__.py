"""Prompts: real text of an exact token length, each with a salt of its own at the very beginning.

Real text, because random tokens falsify the acceptance of speculative decoding; a salt, because a prefix cache would
make a cell look fast. `sources` reads the text, `counting` counts, `salts` and `fit` make the lengths exact, `bodies`
holds what is sent, `conversations` what follows on an answer, and `prepare` does it all before a server's first cell.
"""
