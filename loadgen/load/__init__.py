"""One worker's part of a cell, from its first request to its rows. `cell` is the way in."""
