#!/usr/bin/env bash
# Sets up .venv with everything the kit needs: the same as `make setup`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
make setup "$@"
echo "set up; now: source .venv/bin/activate"
