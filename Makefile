# The front door: `make help` says what there is. CMake does the work (CMakePresets.json has the configurations).
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PREFIX ?= /usr/local
DESTDIR ?=
# How long `make soak` and `make fuzz` run.
SECONDS ?= 600
# Parallel jobs of the builds and of the tests that may run side by side.
JOBS ?= $(shell nproc)

# A compiler cache, where there is one, shared between checkouts.
ifneq ($(shell command -v ccache),)
export CMAKE_C_COMPILER_LAUNCHER := ccache
export CMAKE_CXX_COMPILER_LAUNCHER := ccache
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export CCACHE_SLOPPINESS := pch_defines,time_macros
endif

# $(call build,PRESET,TARGETS): configures quietly and builds.
build = echo "== $(1): building"; cmake --preset $(1) >/dev/null; cmake --build --preset $(1) -j $(JOBS) $(addprefix --target ,$(2))
# $(call check,PRESET,CTEST ARGUMENTS)
check = echo "== $(1): testing"; ctest --preset $(1) -j $(JOBS) $(2)

.PHONY: help
help: ## Say what there is (the default)
	@echo "UCM, a user-space RDMA connection manager. Start with: make demo"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' Makefile | while IFS='|' read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done

.PHONY: build
build: ## Install what the build needs (apt, Debian) and build UCM into build/
	@scripts/setup.sh build
	@$(call build,release,ucm ucmd ucm-bench rdmacm ibverbs)

.PHONY: demo
demo: build ## Run Debian's own RDMA programs over UCM, with no RDMA hardware
	@scripts/setup.sh demo
	@scripts/demo.py

.PHONY: test
test: ## Build with GCC and Clang, and run every test, also under sanitizers
	@scripts/setup.sh build demo test
	@scripts/setup.sh interop || echo "the tests against a Linux kernel will be skipped"
	@scripts/test.sh all $(JOBS)

.PHONY: test-long
test-long: ## Test what takes long: lost datagrams, the largest loads, every program under sanitizers (an hour)
	@scripts/setup.sh build demo test
	@scripts/test.sh long $(JOBS)

.PHONY: test-interop
test-interop: ## Test against a stock Linux kernel, which runs in a virtual machine
	@scripts/setup.sh build demo test
	@scripts/setup.sh interop || echo "the tests against a Linux kernel will be skipped"
	@scripts/test.sh interop $(JOBS)

.PHONY: sanitize
sanitize: ## Of these only the builds with ASan+UBSan and with TSan
	@scripts/setup.sh build demo test
	@scripts/test.sh sanitizers $(JOBS)

.PHONY: explore
explore: ## Explore every state of two nodes with the CM engine (ten minutes, gigabytes)
	@scripts/setup.sh build
	@$(call build,release,explore)
	@build/bin/explore

.PHONY: soak
soak: ## Run random simulated scenarios for SECONDS=600
	@scripts/setup.sh build
	@$(call build,release,sim_random)
	@build/bin/sim_random --fresh --seconds=$(SECONDS)

.PHONY: fuzz
fuzz: ## Search for inputs that fail, for SECONDS=600, with every fuzz target
	@scripts/setup.sh build fuzz
	@$(call build,fuzz,fuzz_targets)
	@scripts/fuzz.sh $(SECONDS)

.PHONY: bench
bench: ## Measure: codecs and engines by themselves, connections through the whole
	@scripts/setup.sh build bench
	@scripts/setup.sh interop || echo "the Linux kernel will not be measured"
	@$(call build,release,ucm ucmd ucm-bench rdmacm ibverbs)
	@bench/run.py

.PHONY: install
install: build ## Install to $(DESTDIR)$(PREFIX)
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)" | grep -v '^-- Set runtime path'

.PHONY: uninstall
uninstall: ## Remove what `make install` with the same DESTDIR and PREFIX put there
	@while read -r file || [ -n "$$file" ]; do rm -fv "$(DESTDIR)$$file"; done < build/install_manifest.txt

.PHONY: deb
deb: build ## Make Debian packages, in build/packages/
	@scripts/setup.sh deb
	@rm -rf build/packages
	@scripts/deb.sh build build/packages
	@ls build/packages/*.deb

.PHONY: format
format: ## Format the sources in place
	@scripts/setup.sh lint
	@git ls-files '*.h' '*.cpp' '*.c' | xargs clang-format-19 -i

.PHONY: lint
lint: ## Check format and run clang-tidy
	@scripts/setup.sh build lint
	@scripts/lint.sh $(JOBS)

.PHONY: clean
clean: ## Remove every build tree
	rm -rf build build-*
