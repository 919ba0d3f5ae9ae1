"""Other load generators on the sink's streams, beside ours: `python -m bench.peers`."""
