#!/usr/bin/env bash
# Builds the runner. One binary serves SME2 on and off: features are masked when it starts, not when it is compiled.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ ! -f .venv/.setup ]; then
  make setup
fi
.venv/bin/sme2-kit build "$@"
