"""Starts the real SGLang on CPUs in place of this process: `launch.py VENV_DIR [FLAG...]`.

VENV_DIR is what `install.sh` built. All flags go to SGLang as they are; those that a CPU server needs, and the scripted
model, come before them, so that a given flag wins. The process id stays the same, as a server control expects.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "SGLANG_USE_CPU_ENGINE": "1",
        "PYTHONPATH": str(HERE / "stubs"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def command(venv: Path, flags: list[str]) -> list[str]:
    """Without a limit of tokens SGLang takes most of the machine's memory for its cache."""
    needed = ["--device", "cpu", "--attention-backend", "torch_native", "--max-total-tokens", "65536"]
    model = ["--model-path", str(venv / "scripted-model")]
    return [str(venv / "bin/python"), "-m", "sglang.launch_server", *needed, *model, *flags]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: launch.py VENV_DIR [FLAG...]")
    argv = command(Path(sys.argv[1]).resolve(), sys.argv[2:])
    os.execve(argv[0], argv, environment())


if __name__ == "__main__":
    main()
