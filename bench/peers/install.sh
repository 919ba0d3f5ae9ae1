#!/usr/bin/env bash
# Installs the peers that `make bench-peers` measures beside us, each into an environment of its own under PEERS_DIR.
#
#   bash bench/peers/install.sh PEERS_DIR SGLANG_VENV
#
# SGLANG_VENV is what `make test-sglang` builds: SGLang's two clients live there (the one in Python wants a few packages
# more), and its CPU build of torch serves guidellm and vLLM, whose own would be a CUDA build of several GB. All other
# versions are pinned in NAME.txt. Safe to repeat; about 2 GB. A peer that cannot be
# installed leaves PEERS_DIR/NAME/.failed with the last lines of pip, and the others go on: the table then says so.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${1:?usage: install.sh PEERS_DIR SGLANG_VENV}
sglang=${2:?usage: install.sh PEERS_DIR SGLANG_VENV}
python=${PYTHON:-python3}

fresh_venv() {
  rm -rf "${peers:?}/$1"
  "$python" -m venv "$peers/$1"
}

# Packages of SGLANG_VENV become visible, behind the peer's own.
borrow_from_sglang() {
  local site
  site=$(echo "$peers/$1"/lib/python3*/site-packages)
  (cd "$sglang" && echo "$PWD"/lib/python3*/site-packages) >"$site/sglang-venv.pth"
}

install_sglang() {
  fresh_venv sglang && borrow_from_sglang sglang &&
    "$peers/sglang/bin/pip" install --quiet --no-deps --ignore-installed -r "$here/sglang.txt"
}

install_aiperf() {
  fresh_venv aiperf && "$peers/aiperf/bin/pip" install --quiet --no-deps -r "$here/aiperf.txt"
}

install_guidellm() {
  fresh_venv guidellm && borrow_from_sglang guidellm &&
    "$peers/guidellm/bin/pip" install --quiet --no-deps -r "$here/guidellm.txt"
}

# Only the Python half of the wheel: `vllm bench serve` needs none of the CUDA kernels, which are most of its size.
install_vllm() {
  fresh_venv vllm && borrow_from_sglang vllm &&
    "$peers/vllm/bin/pip" download --quiet --no-deps --dest "$peers/vllm/wheel" "$(grep ^vllm== "$here/vllm.txt")" &&
    "$peers/vllm/bin/pip" install --quiet --no-deps --ignore-installed -r <(grep -v ^vllm== "$here/vllm.txt") &&
    "$python" - "$peers"/vllm/wheel/*.whl "$(echo "$peers"/vllm/lib/python3*/site-packages)" <<'PYTHON' &&
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if ".so" not in name])
PYTHON
    rm -rf "$peers/vllm/wheel"
}

mkdir -p "$peers"
for peer in sglang aiperf guidellm vllm; do
  wanted=$(cat "$here/$peer.txt" "$here/install.sh" | sha256sum)
  if [ "$(cat "$peers/$peer/.installed" 2>/dev/null)" = "$wanted" ]; then
    echo "install.sh: $peer is up to date"
  elif "install_$peer" >"$peers/$peer.log" 2>&1; then
    echo "$wanted" >"$peers/$peer/.installed"
    rm -f "$peers/$peer/.failed"
    echo "install.sh: $peer is installed"
  else
    mkdir -p "$peers/$peer"
    tail -n 3 "$peers/$peer.log" >"$peers/$peer/.failed"
    echo "install.sh: $peer could not be installed: $(tail -n 1 "$peers/$peer.log")"
  fi
done
