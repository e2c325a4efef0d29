# Everything runs in .venv; each target sets up what it needs there and is quick when nothing changed.
PYTHON ?= python3
# For example: make setup PIP_ARGS="--extra-index-url <PyTorch's CPU wheel index>", to leave CUDA packages out on Linux.
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Quiet but for warnings and errors; PIP_ARGS=-v shows what it does.
# pip would compile twenty thousand files, most of them for nothing, in a minute; Python compiles what it imports.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(PIP_ARGS)
# And keeps it: without, every process would compile torch again.
unexport PYTHONDONTWRITEBYTECODE
# In this locale Python 3.11 could not read in which folder the kit lies, if its name is not ASCII.
ifneq ($(filter C POSIX,$(LC_ALL)),)
export LC_ALL := C.UTF-8
endif
# The releases that everything is tested with; others are used with `make setup TORCH=torch EXECUTORCH=executorch==1.6.0`.
TORCH ?= torch==2.13.0
EXECUTORCH ?= executorch==1.5.1

# One worker more than there are processors: some tests wait. Where one dies, xdist 3.8 may wait forever for its replacement.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PARALLEL = -n $(shell expr $(CORES) + 1) --max-worker-restart=0 --dist loadfile --no-loadscope-reorder $(RECORD)

# The files that have such tests: to collect all takes ten seconds.
MARKED = $(shell grep -rl --include='test_*.py' 'mark\.$(1)' tests | sort)

.PHONY: help setup setup-models setup-wide setup-all demo check test test-wide test-measurements test-models lint format bench durations size fuzz schema prove vendor known-good docs test-docs gallery clean

help:
	@echo "make demo    set up, export toy_cnn, profile it with acceleration on and off, report"
	@echo "make check   format, lint, types and the fast tests, in under a minute"
	@echo "make test    run the tests, in parallel; none of them judges a measured time"
	@echo "make test-measurements   what judges measured times: one test at a time, minutes"
	@echo "make test-wide     what make test leaves to CI: other programs and platforms, the wheel, every documented command"
	@echo "make test-models   export and run every model of the zoo in every dtype it lists"
	@echo "make setup   create $(VENV) with everything exporting and running need"
	@echo "make lint    ruff and mypy    make bench   measure the kit itself    make fuzz   fuzz all readers"
	@echo "make size    lines by folder, largest files and functions    make durations   order the tests by what they take"
	@echo "make clean   remove what make made (not your results)"

# The pip that comes with Python may be years old, and then takes twice as long: a new one if there is a way to get it.
$(BIN)/python:
	@echo "$(PYTHON) -m venv $(VENV)"
	@$(PYTHON) -m venv --without-pip $(VENV)
	@$(PYTHON) -m pip --python $@ install --quiet --no-compile $(PIP_ARGS) pip 2> /dev/null || $(PYTHON) -m venv $(VENV)

# While pip works on one processor, Python compiles on another what exports will import.
COMPILING = $(BIN)/python -c 'import $(1)' > /dev/null 2>&1 &

# Once the kit is there, its name brings what an extra needs without installing the kit again.
KIT := executorch-sme2-kit

# torch goes first: whatever comes after finds it and does not ask for another build of it.
$(VENV)/.setup: pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV), the first time for minutes; 1 of 2: $(TORCH)"
	@$(PIP) $(TORCH)
	@echo "setting up $(VENV); 2 of 2: ExecuTorch and the kit"
	@$(call COMPILING,torch.export._trace, torch._dynamo, torch._inductor.lowering) $(PIP) -e '.[export]' $(EXECUTORCH) && wait
	@$(BIN)/python -m compileall -q model_profiling sme2_kit
	@touch $@

$(VENV)/.setup-dev: $(VENV)/.setup
	@echo "setting up $(VENV): tools to test with"
	@$(call COMPILING,model_profiling.export.exporter, executorch.devtools, executorch.backends.xnnpack.partition.xnnpack_partitioner) $(PIP) '$(KIT)[export,dev]' $(EXECUTORCH) && wait
	@# Python compiles the tests while the first session begins.
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 &
	@touch $@

setup: $(VENV)/.setup

demo: $(VENV)/.setup
	$(BIN)/sme2-kit profile --demo

MEASUREMENTS := tests/measurements tests/gates/test_workflow_steps.py
# `make test test-wide` is one session: what tests share is made once.
BOTH := $(filter 2,$(words $(sort $(filter test test-wide,$(MAKECMDGOALS)))))

# AGAIN=yes adds what holds with more data, drawn at random, what other tests hold.
AGAIN ?= no
export AGAIN
LEFT := $(if $(filter yes,$(AGAIN)),, and not again)

# Nothing in it depends on how long anything takes, on the CPU, or on what else the machine does.
test: $(VENV)/.setup-$(if $(BOTH),wide,dev)
	$(BIN)/python -m pytest -m "not models and not measures$(if $(BOTH),, and not wide)$(LEFT)" $(PARALLEL) --warm=all

# What holds the kit's surroundings rather than the kit, and takes as long as all the rest.
test-wide: $(VENV)/.setup-wide
ifndef BOTH
	$(BIN)/python -m pytest -m "wide and not measures$(LEFT)" $(PARALLEL) --warm=all $(call MARKED,wide)
endif

# What judges measured times: each test repeats its measurement until it can tell, and has the machine to itself.
test-measurements: $(VENV)/.setup-wide
	$(BIN)/python -m pytest -m "measures" -rA --show-capture=stdout --warm=none $(MEASUREMENTS)

# What to run before every commit: of the files marked `fast`, the tests that neither build nor measure.
check: lint
	$(BIN)/python -m pytest -m "fast and not builds and not wide and not measures" $(PARALLEL) --durations=3 $(call MARKED,fast)

# Records what each file of tests takes, by which sessions are ordered; on a machine that does nothing else.
durations:
	$(MAKE) test test-wide RECORD=--record-durations

# Lines of Python by folder, and the largest files and functions.
size: $(VENV)/.setup
	@$(BIN)/python -m tests.helpers.size

# torch is named so that pip keeps the build that is there.
$(VENV)/.setup-models: $(VENV)/.setup-dev
	@echo "setting up $(VENV): what the zoo's models need"
	@$(PIP) '$(KIT)[export,dev,models]' $(TORCH) $(EXECUTORCH)
	@touch $@

$(VENV)/.setup-wide: $(VENV)/.setup-dev
	@echo "setting up $(VENV): other people's programs to test with"
	@$(PIP) '$(KIT)[export,wide]' $(TORCH) $(EXECUTORCH)
	@touch $@

setup-models: $(VENV)/.setup-models
setup-wide: $(VENV)/.setup-wide

# Both at once: pip takes long to find what goes together.
setup-all: $(VENV)/.setup-dev
	@echo "setting up $(VENV): what all other tests need"
	@$(PIP) '$(KIT)[export,wide,models]' $(TORCH) $(EXECUTORCH)
	@touch $(VENV)/.setup-models $(VENV)/.setup-wide

# MODELS="models and not again" leaves out what repeats a large model in another dtype than fp32.
MODELS ?= models
test-models: setup-models
	$(BIN)/python -m pytest -m "$(MODELS)" -n $(CORES) --maxschedchunk 1

lint: $(VENV)/.setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.setup-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.setup-dev
	$(BIN)/python -m benchmarks.run

fuzz: $(VENV)/.setup-dev
	$(BIN)/python -m tests.helpers.fuzz --iterations $(or $(ITERATIONS),1000000)

# The JSON Schemas that a wheel has, beside the types, for editors; and what tests hold the types to.
schema: $(VENV)/.setup-dev
	$(BIN)/python -m model_profiling.schemas
	$(BIN)/python -m tests.helpers.promised_fields

# Tries the faster lowering with the torch and ExecuTorch in $(VENV), and adds them to the table of proven releases.
prove: $(VENV)/.setup-dev
	$(BIN)/python -m tests.helpers.prove_upstream

# The site needs neither torch nor ExecuTorch.
$(VENV)/.setup-docs: pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV): what builds the site"
	@$(PIP) -e '.[docs]'
	@touch $@

# The site, in site/; a broken link is an error.
docs: $(VENV)/.setup-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Every command block of README, docs and skills that can run here, slow ones too.
test-docs: $(VENV)/.setup-wide
	SME2_KIT_ALL_DOCS=1 $(BIN)/python -m pytest tests/project/test_docs.py tests/project/test_documented_commands.py -s

# The layout library of the graph page, from npm, with its licence; `vendor/README.md` has its version and checksum.
VENDOR := model_profiling/report/page/vendor
DAGRE := $(shell sed -n 's/.*@dagrejs.*| \([0-9][0-9.]*\) | MIT.*/\1/p' $(VENDOR)/README.md)
vendor:
	@set -e; home=$$(mktemp -d); npm pack --silent --pack-destination $$home @dagrejs/dagre@$(DAGRE) > /dev/null; \
	  tar xzf $$home/*.tgz -C $$home; cp $$home/package/dist/dagre.min.js $(VENDOR)/; \
	  cp $$home/package/LICENSE $(VENDOR)/dagre.LICENSE; rm -r $$home; sha256sum $(VENDOR)/dagre.min.js

# A small run of the real pipeline for tests of gates; measure it on a quiet machine.
known-good: $(VENV)/.setup-dev
	$(BIN)/python -m tests.helpers.known_good

# NAMES="toy_cnn mobilenet_v3_small" makes only these folders again.
gallery: $(VENV)/.setup-wide
	$(BIN)/python docs/gallery/regenerate.py $(NAMES)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
