#!/usr/bin/env bash
# Installs the real SGLang for CPUs into an environment of its own, and makes the scripted model that the tests serve.
#
#   bash tests/servers/sglang/install.sh VENV_DIR
#
# Safe to repeat: what is already there and unchanged is left alone. About 3 GB and 4 minutes.
#   PYTHON        the interpreter to build it with (default python3; 3.11 is what was tried)
#   TORCH_SOURCE  where PyTorch's CPU build comes from: a wheel, a directory of wheels, or arguments for pip such as
#                 "--index-url URL". Default: what pip finds, which on the default index is a CUDA build of several GB.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:?usage: install.sh VENV_DIR}
python=${PYTHON:-python3}
torch_source=${TORCH_SOURCE:-}

# Compares FILES with the stamp that the last successful step left; true if they are the same.
unchanged() {
  local stamp=$1
  shift
  [ -f "$stamp" ] && [ "$(cat "$@" | sha256sum)" = "$(cat "$stamp")" ]
}

mark() {
  local stamp=$1
  shift
  cat "$@" | sha256sum >"$stamp"
}

install_torch() {
  local torch
  torch=$(grep '^torch==' "$here/requirements.txt")
  echo "install.sh: $torch from ${torch_source:-the configured index}"
  case $torch_source in
    "") "$venv/bin/pip" install --quiet "$torch" ;;
    *.whl) "$venv/bin/pip" install --quiet "$torch_source" ;;
    # shellcheck disable=SC2086 # several arguments in one variable
    -*) "$venv/bin/pip" install --quiet $torch_source "$torch" ;;
    *) "$venv/bin/pip" install --quiet --find-links "$torch_source" "$torch" ;;
  esac
}

install_packages() {
  echo "install.sh: environment in $venv"
  "$python" -m venv "$venv"
  install_torch
  echo "install.sh: what SGLang imports (requirements.txt)"
  "$venv/bin/pip" install --quiet -r "$here/requirements.txt"
  # Without dependencies: the wheel asks for CUDA packages that a CPU server never imports.
  echo "install.sh: sglang itself"
  "$venv/bin/pip" install --quiet --no-deps sglang==0.5.23 xgrammar==0.2.7
}

if unchanged "$venv/.installed" "$here/requirements.txt" "$here/install.sh"; then
  echo "install.sh: $venv is up to date"
else
  install_packages
  mark "$venv/.installed" "$here/requirements.txt" "$here/install.sh"
fi

if unchanged "$venv/scripted-model/.made" "$here/make_scripted_model.py" "$here/scenes.py"; then
  echo "install.sh: $venv/scripted-model is up to date"
else
  echo "install.sh: scripted model in $venv/scripted-model"
  "$venv/bin/python" "$here/make_scripted_model.py" "$venv/scripted-model"
  mark "$venv/scripted-model/.made" "$here/make_scripted_model.py" "$here/scenes.py"
fi
