# Plica: `make demo` sets everything up and shows the main job; `make test` checks everything.
# Python >= 3.11 and make are enough; the virtual environment lives in .venv.

PYTHON ?= python3
VENV   := .venv
MINUTES ?= 10
BIN    := $(VENV)/bin
PY     := $(BIN)/python
# Nothing is compiled that is never imported: that is a fifth of what would lie on the disk.
PIP    := $(PY) -m pip install --quiet --no-compile

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Processes that tests start find bytecode, whatever the environment says of it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: conformance properties help test lint types imports pytest demo docs wheels fuzz bench targets setup clean

help:
	@echo 'make demo    set up and run the main job: compile two networks, check them, time them'
	@echo 'make test    set up and run ruff, mypy, import-linter and the tests'
	@echo 'make docs    the documentation as a site, build/docs/site, searched without a network'
	@echo 'make wheels  the packages plica and plica-runtime, checked, in dist'
	@echo 'make fuzz    every fuzzer for MINUTES (10) on all cores, fresh seeds; findings in build/fuzz'
	@echo 'make properties  the property tests with thousands of examples (long)'
	@echo 'make conformance  the backend tests of the onnx package (long)'
	@echo 'make targets every target here: operators, random kernels, networks, time beside cpu (long;'
	@echo '             TARGETS="c wasm" some, SECONDS=600 a part, the next run goes on from there)'
	@echo 'make bench   a short run of the main benchmarks (benchmarks/README.md lists all)'
	@echo 'make clean   remove the virtual environment and all caches'

# --- set-up: stamps say what was installed for which pyproject.toml ------------------------------

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'Plica needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo 'This Python cannot make virtual environments.' >&2; \
	  echo 'On Debian or Ubuntu: sudo apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime-stamp: pyproject.toml | $(PY)
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev-stamp: pyproject.toml | $(PY)
	$(PIP) --editable '.[dev]'
	@touch $(VENV)/.runtime-stamp $@

$(VENV)/.bench-stamp: $(VENV)/.dev-stamp
	$(PIP) --editable '.[dev,bench]'
	@touch $@

$(VENV)/.docs-stamp: $(VENV)/.runtime-stamp
	$(PIP) --editable '.[docs]'
	@touch $@

setup: $(VENV)/.dev-stamp

# --- checks --------------------------------------------------------------------------------------

test: $(VENV)/.dev-stamp
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory imports
	@$(MAKE) --no-print-directory pytest

lint: $(VENV)/.dev-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Where the machine is so busy that mypy's workers do not start in time (it ends with 2), one process checks.
types: $(VENV)/.dev-stamp
	$(BIN)/mypy || { test $$? -eq 2 && $(BIN)/mypy --num-workers 0; }

imports: $(VENV)/.dev-stamp
	$(BIN)/lint-imports

pytest: $(VENV)/.dev-stamp
	$(BIN)/pytest

# --- jobs ----------------------------------------------------------------------------------------

demo: $(VENV)/.runtime-stamp
	$(BIN)/plica demo

docs: $(VENV)/.docs-stamp
	$(PY) -m docs.make_site build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file build/docs/mkdocs.yml
	@echo 'build/docs/site/index.html'

wheels: $(VENV)/.dev-stamp
	$(PIP) build twine
	rm -rf dist
	$(PY) -m build --outdir dist .
	$(PY) -m build --wheel --outdir dist packaging/runtime
	$(BIN)/twine check --strict dist/*

fuzz: $(VENV)/.dev-stamp
	$(BIN)/plica fuzz all --seconds $$(($(MINUTES) * 60)) --corpus build/fuzz

properties: $(VENV)/.dev-stamp
	PLICA_PROFILE=deep $(BIN)/pytest -m 'hypothesis or slow' tests

conformance: $(VENV)/.dev-stamp
	PLICA_CACHE=off $(BIN)/pytest -n0 -s tests/frontend/onnx/test_conformance.py --slow

targets: $(VENV)/.dev-stamp
	$(BIN)/pytest -n0 --slow -q tests/codegen/wasm tests/codegen/opencl tests/codegen/webgpu tests/codegen/rocm tests/codegen/metal tests/codegen/spirv tests/codegen/micro tests/runtime/test_cross.py tests/search/pool/test_served.py tests/runtime/test_binding.py
	PYTHONPATH=. $(PY) benchmarks/targets.py $(TARGETS) $(if $(SECONDS),--seconds $(SECONDS))

bench: $(VENV)/.bench-stamp
	@for line in 'roof.py --n 12' 'cliffs.py --seed 1 --n 40' 'models.py mlp resnet18 mobilenet_v2' \
	  'open_sizes.py --sizes 3' 'compile_time.py resnet18 --rows 10'; do \
	  echo "== $$line"; PYTHONPATH=. $(PY) benchmarks/$$line || exit 1; done

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find plica tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
