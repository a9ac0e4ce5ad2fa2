# SPDX-License-Identifier: Apache-2.0
# The front door. Every target first installs what is missing (scripts/setup) and builds what it needs.
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
.PHONY: build demo test test-sanitize test-peers bench format install clean help

build:  ## build the library and the tool: build/release/tandem
	@scripts/setup build
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),tandem_shared tandem_cli)

demo: build  ## train a small conv net on hand-written digits, under a minute
	@build/$(PRESET)/tandem demo

test:  ## all tests; the last line counts them
	@scripts/setup build test
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),all tests)
	@PRESET=$(PRESET) scripts/run_tests

test-sanitize:  ## the fast suite under ASan+UBSan, threads and loader under TSan
	@scripts/setup build sanitize
	@JOBS=$(JOBS) scripts/run_tests sanitize

test-peers:  ## compare with PyTorch (installed from PyPI into build/deps/peers)
	@scripts/setup build test peers
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),all tests)
	@PRESET=$(PRESET) scripts/run_tests peers

bench:  ## measure; PEERS=1 measures PyTorch beside it
	@scripts/setup build bench $(if $(PEERS),peers)
	@$(call configure,$(PRESET))
	@$(call build,$(PRESET),all)
	@PRESET=$(PRESET) bench/run $(ARGS)

format:  ## format every source file
	@scripts/setup format
	@scripts/checks/format --fix

install: build  ## install under PREFIX (default /usr/local)
	@cmake --install build/$(PRESET) $(if $(PREFIX),--prefix $(PREFIX))

clean:  ## remove build trees, keep what setup fetched
	@rm -rf build/release build/debug build/clang build/asan build/tsan

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{printf "%-20s%s\n", $$1, $$2}'
