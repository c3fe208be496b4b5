#!/usr/bin/env bash
# Builds the wheel, installs it with its dependencies alone into an empty environment, and runs it
# in a folder that is not the repository, without a network: the version, the typed marker, the demo.
#
#   tools/check_wheel.sh [PYTHON]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset PYTHONPATH PYTHONDONTWRITEBYTECODE
begun=$SECONDS
said() { echo "· $* ($((SECONDS - begun)) s)"; }

# From a copy: building leaves files behind, and takes up those of last time.
mkdir "$place/copy" "$place/wheels" "$place/elsewhere"
(cd "$root" && tar -c --exclude=__pycache__ --exclude='*.egg-info' pyproject.toml README.md LICENSE NOTICE src) |
  tar -x -C "$place/copy"
"$python" -m venv "$place/empty"
bin=$place/empty/bin
install=("$bin/pip" install --quiet --no-compile --constraint "$root/constraints.txt")
"$bin/pip" wheel --quiet --no-deps --wheel-dir "$place/wheels" "$place/copy"
wheel=$(echo "$place"/wheels/counterveil-*.whl)
said "built $(basename "$wheel")"

"${install[@]}" "$wheel"
said "installed into an empty environment"
"$bin/pip" check
# Extras: what they ask for can be had together. Nothing of it is installed.
"$bin/pip" install --quiet --dry-run --constraint "$root/constraints.txt" "$wheel[all]"
said "extras resolve"

cd "$place/elsewhere"
"$bin/counterveil" --version
"$bin/counterveil-lab" --help >/dev/null
"$bin/python" - <<'CODE'
from importlib.resources import files
from pathlib import Path

import counterveil

assert "site-packages" in Path(counterveil.__file__).parts, counterveil.__file__
assert files("counterveil").joinpath("py.typed").is_file()
CODE

# Without a network where the system lets us take it away; no command may need one.
offline=()
if unshare --net --map-root-user true 2>/dev/null; then
  offline=(unshare --net --map-root-user)
fi
OMP_NUM_THREADS=1 XDG_CACHE_HOME=$place/cache "${offline[@]}" "$bin/counterveil" demo --quick --out demo >demo.log
for file in report.html adult.schema.json queries.csv model.pt2 adult-0.75.veil; do
  test -s "demo/$file"
done
"$bin/counterveil" inspect demo/adult-0.75.veil >/dev/null
said "the demo ran${offline:+ without a network}"
