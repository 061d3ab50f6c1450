# SPDX-License-Identifier: Apache-2.0
# A thin front: every line here can be typed by hand.
JOBS ?= $(shell nproc)
PYTHON := .venv/bin/python
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help setup install demo build test format check core-only asan tsan sanitize fuzz stress clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## install packages and .venv; nothing when they are there
	@tools/setup

# Into build/release, with the release preset's options: the package, the command and the C++ tests
# share one build tree, and a second run compiles only what changed.
install: setup ## install the package and the command into .venv
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  -C build-dir=build/release \
	  -C cmake.define.KERF_DEVELOPER_MODE=ON \
	  -C cmake.define.CMAKE_MAKE_PROGRAM="$$(command -v ninja)" .

demo: install ## a model cut in two, planned and run
	$(PYTHON) examples/demo.py

build: install ## everything, tests included, in build/release
	cmake --build build/release

test: build ## all tests: C++ (ctest), then Python (pytest, against the installed package)
	ctest --preset release
	$(PYTHON) -m pytest -q -n $(JOBS) tests/python

format: setup ## format all sources in place
	tools/format

check: setup ## layers, formatting, Python lint
	$(PYTHON) tools/check_layers.py
	tools/format --check

core-only: ## build and test without PyTorch and Python
	cmake --preset core-only
	cmake --build --preset core-only
	ctest --preset core-only

asan: setup ## build and test with the address and undefined-behaviour sanitizers
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan

# Newer kernels randomise addresses further than the thread sanitizer of older compilers can follow.
tsan: setup ## build and test with the thread sanitizer
	cmake --preset tsan
	cmake --build --preset tsan
	$$(setarch -R true 2>/dev/null && echo setarch -R) ctest --preset tsan

# What CI runs of the sanitizers: the core alone, warnings as errors, and threads where there are
# threads. Budgets are counted, so that code that is ten times slower takes ten times as long: time
# budgets, busy machines and exact plans where memory is short are tried on the code as it is shipped.
CORE := -DKERF_WITH_TORCH=OFF -DKERF_WITH_PYTHON=OFF -DKERF_WARNINGS_AS_ERRORS=ON
sanitize: ## the core's tests under the sanitizers, a few minutes
	cmake --preset asan -B build/asan-core $(CORE)
	cmake --build build/asan-core
	ctest --test-dir build/asan-core --output-on-failure -j $(JOBS) -LE must_not_compile \
	  -E 'TimeBudget|ABusyMachine|NoMethodBeatsTheExactOneWhereMemoryIsShort|ATrainingPlanWhere|RecomputeAuto'
	cmake --preset tsan -B build/tsan-core $(CORE)
	cmake --build build/tsan-core --target kerf_runtime_tests
	$$(setarch -R true 2>/dev/null && echo setarch -R) build/tsan-core/tests/kerf_runtime_tests

# The same tests run for two seconds each with the others.
fuzz: setup ## damaged files for two minutes: loading under the sanitizers, and whole pipelines
	cmake --preset asan
	cmake --build --preset asan --target kerf_fuzz_tests
	KERF_FUZZ_SECONDS=$${KERF_FUZZ_SECONDS:-15} build/asan/tests/kerf_fuzz_tests
	$(MAKE) install
	KERF_FUZZ_SECONDS=$${KERF_FUZZ_SECONDS:-60} KERF_FUZZ_SEED=$${KERF_FUZZ_SEED:-$$(date +%s)} \
	  $(PYTHON) -m pytest -q tests/python/test_damaged_files.py

# The same test injects 300 with the others.
stress: install ## training steps with 10,000 faults on real devices, seven minutes
	KERF_FAULTS=$${KERF_FAULTS:-10000} KERF_FAULTS_SEED=$${KERF_FAULTS_SEED:-$$(date +%s)} \
	  $(PYTHON) -m pytest -q tests/python/test_training_faults.py

clean: ## remove the build trees; .venv stays
	rm -rf build dist
