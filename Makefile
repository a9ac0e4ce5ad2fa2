# SPDX-License-Identifier: Apache-2.0
# Entry point. Every target first installs what is missing (scripts/setup) and builds what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
JOBS ?= $(shell nproc)
PRESET ?= release
ifneq ($(wildcard ../shared/data),)
export TANDEM_DATA ?= $(abspath ../shared/data)
endif
configure = cmake --preset $(1) | sed -n '/^-- \(oneDNN\|tests\):/p'
build = cmake --build --preset $(1) -j $(JOBS) --target $(2)
.DEFAULT_GOAL := build
.PHONY: build demo test test-sanitize fuzz attack test-peers test-gpu test-serve test-edge test-bits test-dist check-op check-additions docs bench mutants format install clean help

build:  ## build the library and the tool: build/release/tandem
	@scripts/setup build
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),tandem_shared tandem_cli tandem_plugins)

demo: build  ## train a small conv net on handwritten digits, under a minute
	@build/$(PRESET)/tandem demo

test:  ## run all tests; the last line counts them
	@scripts/setup build test
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),all tests)
	@PRESET=$(PRESET) scripts/run_tests

test-sanitize:  ## run the fast suite under ASan+UBSan, threads and loader under TSan
	@scripts/setup build sanitize
	@JOBS=$(JOBS) scripts/run_tests sanitize

fuzz:  ## fuzz every reader of files for MINUTES each (default 1) under ASan+UBSan
	@scripts/setup build sanitize
	@JOBS=$(JOBS) scripts/fuzz $$(($(or $(MINUTES),1) * 60)) $(READERS)

attack:  ## 20,000 mutated and all crafted files over all readers: crashes, hangs, time, memory
	@scripts/setup build test
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),tandem_attack)
	@TANDEM_SOURCE_DIR=$(CURDIR) build/$(PRESET)/tests/tandem_attack $(ARGS)

test-peers:  ## compare with PyTorch (installed from PyPI into build/deps/peers)
	@scripts/setup build test peers
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),all tests)
	@PRESET=$(PRESET) scripts/run_tests peers

test-gpu:  ## tests of the GPU drivers, and NVIDIA's compiler (from PyPI) over every kernel
	@scripts/setup build test gpu
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),tandem_test_gpu)
	@TANDEM_TEST_ALL=1 TANDEM_SOURCE_DIR=$(CURDIR) build/$(PRESET)/tests/tandem_test_gpu

test-serve: build  ## the server's threads under TSan, 30 minutes of load, peers' speed (not in CI: 50 minutes)
	@scripts/setup build sanitize
	@JOBS=$(JOBS) scripts/run_tests serve_threads
	@scripts/soak
	@bench/compare_serve --check

test-edge:  ## C and WebAssembly of models on emulated processors, in Node and in a browser
	@scripts/setup build test browser edge
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),tandem_test_edge)
	@build/$(PRESET)/tests/tandem_test_edge

test-bits:  ## 20,000 random programs, compiled and eager, and emitted C of every compiler, to the bit
	@scripts/setup build test
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),tandem_test_compile tandem_test_codegen)
	@TANDEM_EVERY_COMPILER=1 build/$(PRESET)/tests/tandem_test_codegen --gtest_filter='EmitC.*'
	@TANDEM_SOURCE_DIR=$(CURDIR) TANDEM_GRAPHS=20000 build/$(PRESET)/tests/tandem_test_compile --gtest_filter='RandomGraphs.*'

test-dist:  ## every scenario of faults, on every engine, and recipes that start again after them
	@scripts/setup build test
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),tandem_test_dist tandem_cli tandem_plugins)
	@TANDEM_FAULT_MATRIX=1 TANDEM_SOURCE_DIR=$(CURDIR) TANDEM_TOOL=$(CURDIR)/build/$(PRESET)/tandem build/$(PRESET)/tests/tandem_test_dist --gtest_brief=1
	@TANDEM_TOOL=$(CURDIR)/build/$(PRESET)/tandem scripts/fault_runs

check-op:  ## after adding an op: make check-op OP=NAME writes docs/ops.md and runs its tests
	@scripts/setup build test
	@$(call configure,$(PRESET))
	@PRESET=$(PRESET) JOBS=$(JOBS) scripts/check_op $(OP)

docs: build  ## rewrite the reference pages: ops, recipes, layers, optimizers, Trainer, data ...
	@build/$(PRESET)/tandem ops --markdown > docs/ops.md.new && mv docs/ops.md.new docs/ops.md
	@build/$(PRESET)/tandem recipe reference > docs/recipe-reference.md.new && mv docs/recipe-reference.md.new docs/recipe-reference.md
	@scripts/reference_pages

bench:  ## measure speed; PEERS=1 measures PyTorch too
	@scripts/setup build bench $(if $(PEERS),peers)
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),all)
	@PRESET=$(PRESET) bench/run $(ARGS)

mutants:  ## flip 30 operators one at a time and see that tests fail (not in CI)
	@scripts/setup build test
	@JOBS=$(JOBS) scripts/mutants

check-additions:  ## add what docs/adding-*.md show to a clone and test it whole (not in CI)
	@scripts/setup build test
	@scripts/check_additions

format:  ## format every source file
	@scripts/setup format
	@scripts/checks/format --fix

install: build  ## install under PREFIX (default /usr/local)
	@cmake --install build/$(PRESET) $(if $(PREFIX),--prefix $(PREFIX))

clean:  ## remove build trees, keep what setup downloaded
	@rm -rf build/release build/debug build/clang build/asan build/tsan

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{printf "%-22s%s\n", $$1, $$2}'
