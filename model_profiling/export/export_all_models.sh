#!/usr/bin/env bash
# Exports models into out_<model>/artifacts of the working directory, each in the dtypes it is tested in:
#   bash model_profiling/export/export_all_models.sh              every model of the kit
#   bash model_profiling/export/export_all_models.sh NAME ...     these; also ExecuTorch's own, and path/to/file.py:Class
#   DTYPES="fp16 int8" bash model_profiling/export/export_all_models.sh [NAME ...]
# One failure does not end it; the failures are listed at the end, and the exit code is then 1. Finished exports are reused.
set -uo pipefail
if ! listed="$(sme2-kit models --json)"; then
  echo "error: sme2-kit is not installed in this shell" >&2
  echo "  fix: source .venv/bin/activate (after bash model_profiling/scripts/setup_repo.sh)" >&2
  exit 3
fi

# One line for each export: name and dtype. A model that lacks a package is named on standard error.
plan() {
  "${PYTHON:-python3}" -I - "$listed" "${DTYPES:-}" "$@" <<'PYTHON'
import json, sys

listed, dtypes, *names = sys.argv[1:]
known = {model["name"]: model for model in json.loads(listed)}
for name in names or [name for name, model in known.items() if model["source"] == "kit" and "dtypes" in model]:
    model = known.get(name, {})
    if not names and model["missing"]:
        print(f"skipped {name}: needs {', '.join(model['missing'])}", file=sys.stderr)
        continue
    tested = model.get("dtypes") or ["fp32", "fp16"]
    # Asked for by name, a model is exported in whatever dtype was asked for.
    wanted = dtypes.split() or tested
    for dtype in wanted if names else [dtype for dtype in wanted if dtype in tested]:
        print(name, dtype)
PYTHON
}

if ! exports="$(plan "$@")"; then
  echo "error: ${PYTHON:-python3} could not make the list of exports" >&2
  echo "  fix: see the message above; PYTHON=... names another Python" >&2
  exit 3
fi
if [ -z "$exports" ]; then
  echo "error: there is nothing to export${DTYPES:+ in $DTYPES}" >&2
  echo "  fix: sme2-kit models lists the models and the dtypes they are tested in" >&2
  exit 2
fi
failed=()
while read -r name dtype; do
  [ -n "$name" ] || continue
  sme2-kit export "$name" --dtype "$dtype" </dev/null || failed+=("$name $dtype")
done <<<"$exports"
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
