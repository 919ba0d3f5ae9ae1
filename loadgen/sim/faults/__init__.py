"""The fault server: `loadgen sim --scenario`. Every reported fault of a stream, played by script, byte by byte.

`table` holds the scenarios, each a few lines on a `Stage`; `docs/faults.md` is written from it.
"""
