# Targets: setup, setup-tools (setup-pyclaw, setup-ray, setup-triton, setup-ngspice, setup-chromium), demo, demo-time, check, test-quick, test, test-slow, sanitize, docs, bench, lint (style, size), tables. `make PYTHON=python3.12 setup` picks an interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.chonn-setup
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile
# The C kernel is rebuilt, and the environment brought up to date, when one of these changes.
INPUTS := pyproject.toml lab/pyproject.toml constraints.txt hatch_build.py plugins/chonn_autoload.py chonn_ops/_library.py $(shell find chonn_ops -name '*.[ch]')

.PHONY: setup setup-tools setup-pyclaw setup-ray setup-triton setup-ngspice setup-chromium demo demo-time check test-quick test test-slow sanitize docs bench lint style size tables

setup: $(STAMP)

$(STAMP): $(INPUTS)
	@echo "Setting up $(VENV): about 6 GB and two to four minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[all]" -e ./lab --group dev
	# PDEBench 0.1.0 pins Python < 3.11 and torch 1.13; it runs on current versions through our plugin.
	$(BIN)/python -m pip install --quiet --no-deps --ignore-requires-python pdebench==0.1.0
	$(BIN)/chonn info
	@touch $@

# What some tests need beside `setup`; they skip without it.
setup-tools: setup-pyclaw setup-ray setup-triton setup-ngspice setup-chromium

SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
APT_INSTALL := $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends

# The solver behind shallow-water data, built from source in about two minutes.
setup-pyclaw: setup
	command -v gfortran || ($(APT_INSTALL) gfortran)
	$(BIN)/python -m pip install --quiet --no-deps -c constraints.txt clawpack

# Ray and submitit, by which the laboratory runs on clusters.
setup-ray: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e "./lab[clusters]"

# The oldest Triton that kernels are written for, that of PyTorch 2.6, beside the installed one. Its
# interpreter needs an older NumPy.
setup-triton: setup
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/triton-oldest triton==3.2.0 "numpy<2.4"

# The simulator that netlists are for.
setup-ngspice:
	command -v ngspice || ($(APT_INSTALL) ngspice)

# The browser that looks at pages.
setup-chromium:
	command -v chromium || command -v chromium-browser || command -v google-chrome || ($(APT_INSTALL) chromium fonts-dejavu-core)

demo: setup
	$(BIN)/python examples/pdebench_darcy.py --output runs/demo

demo-time: setup
	$(BIN)/python examples/pdebench_time.py --output runs/demo-time

# The inner loop, a minute on two cores: style beside the quick tests. Either fails it, once both are through.
# Types take as long as all of that; they are a part of `make lint`.
check: setup
	$(MAKE) --no-print-directory --jobs=2 style test-quick

# Every operator, cell, block and model at the settings that tell most; `make test` has the thorough ones, too:
# every backend at every size, opcheck, what compiles and exports, and the models inside of other packages.
# Plugins that other packages bring to pytest cost every process their imports.
test-quick: setup
	$(PYTEST) -p no:hydra_pytest -p no:anyio -p no:hypothesispytest -q -m "not slow and not thorough" -k "not triton and not scan_cuda" tests/test_operators.py tests/inspect tests/network tests/nn tests/scan tests/models

test: setup
	$(PYTEST) -m "not slow"

# What takes more than a few seconds a test; .ci/run runs it after `make test`.
test-slow: setup
	$(PYTEST) -m slow

# The tests of the compiled kernels on small grids, in a copy whose kernels ASan and UBSan watch.
# Without AVX-512, which takes as long to compile as all others. libstdc++ is there because ASan looks for C++'s
# exceptions first.
SANITIZED := build/sanitized
SANITIZER := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all
sanitize: setup
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	cp -r chonn_ops tests plugins conftest.py pyproject.toml hatch_build.py $(SANITIZED)
	cd $(SANITIZED) && rm -f chonn_ops/_kernel.so && $(abspath $(BIN))/python -c "import hatch_build as build; build.FLAGS += '$(SANITIZER)'.split(); build.ISAS.pop('avx512'); build.compile_kernel()"
	cd $(SANITIZED) && PYTHONPATH=.:plugins OMP_NUM_THREADS=2 ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		$(abspath $(BIN))/python -m pytest -q -m "not slow and not thorough" tests/scan/test_scan_cpu.py tests/network/test_network_cpu.py tests/network/test_network_backends.py tests/network/test_network_multigrid.py tests/network/test_direct.py tests/network/test_network_helmholtz.py tests/network/test_network_complex.py tests/network/test_graphs.py \
		tests/models/test_step.py::test_the_kernel_carries_as_operations_do

docs: setup
	$(BIN)/sphinx-build -W --keep-going -b html docs build/docs

# About three quarters of an hour on two cores, which should have nothing else to do.
BENCHMARKS := scan network graphs inverse models vision
bench: setup
	# Peers of the networks; a peer that is absent is left out with a note.
	-$(BIN)/python -m pip install --quiet -c constraints.txt pyamg torch-sla
	for name in $(BENCHMARKS); do $(BIN)/chonn-lab bench $$name || exit 1; done
	$(MAKE) tables

# The tables of README and docs, from the files in lab/results.
tables: setup
	$(BIN)/python -m chonn_lab.report.docs

lint: style size
	$(BIN)/pyright
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(BIN)/zizmor --offline --quiet .github/workflows

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(shell find chonn_ops -name '*.[ch]' -o -name '*.cu')
	$(BIN)/lint-imports

# Lines a folder, files that a call enters and times of small solves, against the budgets in pyproject.toml.
size: setup
	$(BIN)/python -m chonn_lab.report.size
