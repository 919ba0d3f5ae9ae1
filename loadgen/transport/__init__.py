"""The timed path: what is sent, what comes back, and when. See `exchange` for what a transport leaves."""
