"""A simulated SGLang server, for users without a GPU and for tests; see `server`."""
