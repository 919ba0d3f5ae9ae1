"""The benchmark of the client itself (`make bench`), and of other tools beside it (`make bench-peers`).

The sink of `loadgen.sink` has one core, the client under test the other; see docs/performance.md.
"""
