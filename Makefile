# make demo: virtual environment, install, the whole loop on the embedded models.
# make test: the tests; make test-long: those that draw very many texts, train, start programs again
# and again, or a browser.
# make check: lint, types, doctests.   make fuzz: damaged files, for an hour.
# make mutants: what the tests would miss.
# make audit: known holes in the pinned packages.   make pins: pin the newest ones.
# make docs: the site, in build/site.
# make engine: vLLM's CPU build, 3.5 GB.   make test-engine: the tests that start it.
# Needs git, make, Python 3.11 or newer and a package index.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
# Where PyTorch keeps its CPU builds, for machines without a GPU whose own index has none.
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

# What the battery of measurements (docs/gpu-suite.md) needs beside torch, transformers, numpy and
# scipy, as wheels for the Python of the machine that it runs on.
GPU_PYTHON ?= 3.12
GPU_PACKAGES ?= msgspec array-api-compat pandas python-dateutil

FUZZ_MINUTES ?= 60

# Of each module; MUTANTS=--all tries all, which takes hours.
MUTANTS ?= --mutants 60

# The environment of the inference engine: its packages are never those of specsim.
ENGINE_VENV ?= .engine

.PHONY: demo test test-long check docs fuzz mutants pins audit engine test-engine install clean gpu-wheels

demo: install
	$(BIN)/specsim demo

test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-long: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'long and not engine' -n 2 --dist worksteal

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --doctest-modules specsim

docs: install
	$(BIN)/python -m mkdocs build --quiet --strict

# Damaged files and made-up command lines for an hour, or FUZZ_MINUTES; what it finds is in build/fuzz,
# and a run that was stopped goes on.
fuzz: install
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.long --minutes $(FUZZ_MINUTES)

# Changes the modules that everything rests on, one thing at a time, and sees whether their tests fail;
# docs/mutants.md says what came of it. A run that was stopped goes on.
mutants: install
	$(BIN)/pip install --quiet -c constraints.txt -e '.[mutants]'
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.support.mutants.run $(MUTANTS)
	$(BIN)/python -m tests.support.mutants.page

# Pins what a fresh installation takes today; the tests decide whether that stays. A torch for GPUs
# says itself which parts of CUDA it takes.
pins:
	$(PYTHON) -m venv --clear build/pins
	build/pins/bin/pip install --quiet --no-deps --index-url $(TORCH_CPU_INDEX) torch || true
	build/pins/bin/pip install --quiet -e '.[calibrate,dask,ray,browser,mutants,dev]'
	{ sed -n 1p constraints.txt; build/pins/bin/pip freeze --exclude-editable --exclude torch \
	  | sed '/^cuda-/d; /^nvidia-/d; /^triton==/d'; \
	  build/pins/bin/pip freeze | sed -n 's/^\(torch==[0-9.]*\).*/\1/p'; } > build/constraints.txt
	mv build/constraints.txt constraints.txt

# Known holes in the pinned packages; fails where the index of packages tells of none of them.
audit:
	$(PYTHON) -m venv --clear build/audit
	build/audit/bin/pip install --quiet pip-audit
	build/audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt

# Exits where it cannot be had: python3 -m calibrate.engine.install says 3 then, make itself 2.
engine:
	$(PYTHON) -m calibrate.engine.install $(ENGINE_VENV)

test-engine: install engine
	ENGINE_VENV=$(ENGINE_VENV) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m engine tests/engine

install: $(VENV)/installed

# On a machine with a GPU the default build of torch comes with what it needs; elsewhere a CPU
# build is tried first, since the default one brings gigabytes that cannot be used. Of a plain
# installation from before pip leaves what numba compiled, which would hide the sources.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specsim needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	if command -v nvidia-smi >/dev/null 2>&1; then \
	  $(BIN)/pip install --quiet -c constraints.txt torch==$(TORCH); \
	else \
	  $(BIN)/pip install --quiet -c constraints.txt torch==$(TORCH)+cpu 2>/dev/null || \
	  $(BIN)/pip install --quiet --extra-index-url $(TORCH_CPU_INDEX) -c constraints.txt torch==$(TORCH)+cpu || \
	  $(BIN)/pip install --quiet -c constraints.txt torch==$(TORCH); \
	fi
	$(BIN)/pip install --quiet -c constraints.txt -e '.[calibrate,dask,ray,browser,dev]'
	rm -rf $(VENV)/lib/python*/site-packages/specsim
	touch $@

gpu-wheels:
	rm -rf .whl
	set -e; for name in $(GPU_PACKAGES); do \
	  $(PYTHON) -m pip download --quiet --no-deps --only-binary=:all: -d .whl \
	    --python-version $(GPU_PYTHON) --implementation cp \
	    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
	    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
	    "$$(grep -i "^$$name==" constraints.txt)"; \
	done
	ls -l .whl

clean:
	rm -rf $(VENV) build specsim-demo
