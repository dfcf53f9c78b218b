# Everything that people and CI do with this repository. `make` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --warn-undefined-variables

CARGO ?= cargo
# Features of the released binary.
FEATURES ?= tls
# Arguments for `make bench`, `make campaign`, `make cluster-up` and `make demo`.
ARGS ?=
TARGET := $(shell uname -m)-unknown-linux-gnu
STATIC := target/$(TARGET)/release/lockkeeper
# The C library inside; addresses to relocate as a bitmap (glibc 2.36 or newer, which the build tries out
# by running the binary); no tables for unwinding the stack, see the script; random numbers from the system
# call, since a static binary does not find the C library's function and would need /dev/urandom.
link-arg = -C link-arg=-Wl,$(1)
comma := ,
STATIC_FLAGS := -C target-feature=+crt-static $(call link-arg,-z$(comma)pack-relative-relocs) \
    $(call link-arg,-T$(comma)$(CURDIR)/sidecar/static.ld) $(call link-arg,--no-eh-frame-hdr) \
    --cfg getrandom_backend="linux_getrandom"
BINARY := $(CURDIR)/$(STATIC)
CLUSTER := $(CARGO) run --quiet --locked -p lockkeeper-e2e --bin lockkeeper-cluster --
CRATES := lockkeeper-lock lockkeeper-sidecar lockkeeper-crds lockkeeper-operator lockkeeper-e2e

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## Install what the other targets need and this machine lacks
	@.ci/setup

.PHONY: build
build: ## Build everything, for development
	$(CARGO) build --workspace

.PHONY: release
release: ## Build the static binary, with FEATURES (tls), and tell its size
	RUSTFLAGS='$(STATIC_FLAGS)' $(CARGO) build --release --locked \
	    --target $(TARGET) -p lockkeeper-sidecar --features "$(FEATURES)"
	@$(STATIC) --version
	@echo "$(STATIC): $$(stat -c %s $(STATIC)) bytes, with the features: $(FEATURES)"

.PHONY: sizes
sizes: ## Tell the size of the static binary without and with TLS
	@$(MAKE) --no-print-directory release FEATURES=
	@$(MAKE) --no-print-directory release FEATURES=tls

.PHONY: test-static
test-static: setup release ## Run the static binary alone in an empty root (needs root)
	LOCKKEEPER_STATIC_BINARY="$(CURDIR)/$(STATIC)" \
	    $(CARGO) test --locked -p lockkeeper-e2e --test static_binary -- --nocapture

.PHONY: test
test: setup ## Run all tests, those on a real ensemble and on a real Kubernetes included
	@if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    $(CLUSTER) build; \
	else \
	    echo "skipped: Kubernetes, and the tests on it (they need root and Go)"; \
	fi
	$(CARGO) test --workspace --locked --no-fail-fast
	# Random histories of the lock's task, ten thousand: minutes, but hours without optimisation.
	$(CARGO) test --profile quick --locked -p lockkeeper-lock --test histories

.PHONY: lint
lint: deny ## Check format, lints, documentation, every crate alone, and the dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	# Private items too: most of this documentation is for those who work here.
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" \
	    $(CARGO) doc --workspace --all-features --no-deps --document-private-items --locked
	# In a workspace, a feature that one crate turns on is on for all: alone each has to bring its own.
	for crate in $(CRATES); do $(CARGO) check --locked -p "$$crate"; done

.PHONY: deny
deny: cargo-deny ## Check licences, banned and doubled crates, and sources
	$(CARGO) deny --locked check bans licenses sources

.PHONY: advisories
advisories: cargo-deny ## Check for known vulnerabilities, if their database can be fetched
	@if ! $(CARGO) deny --locked fetch db; then \
	    echo "skipped: advisories (their database cannot be fetched from this machine)"; \
	else \
	    $(CARGO) deny --locked check --disable-fetch advisories; \
	fi

.PHONY: cargo-deny
cargo-deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install cargo-deny --locked --version '^0.20'

.PHONY: crds
crds: ## Generate the resource's definition, its chart and its reference from crds/src
	$(CARGO) run --locked -p lockkeeper-crds -- .

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: bench
bench: setup release ## Measure handoffs beside other clients, what the released binary takes, and the operator
	$(CARGO) bench -p lockkeeper-e2e --locked --bench handoff --bench child -- $(ARGS)
	$(CARGO) bench -p lockkeeper-sidecar --locked --bench footprint --no-run
	$(CARGO) run --quiet --locked -p lockkeeper-e2e --bin lockkeeper-ensemble -- --servers 3 -- \
	    bash -c 'LOCKKEEPER_BINARY=$(BINARY) LOCKKEEPER_CONNECT=$$ZOOKEEPER_CONNECT \
	        $(CARGO) bench --quiet -p lockkeeper-sidecar --locked --bench footprint'
	@$(MAKE) --no-print-directory bench-operator

# Not cargo's profile for benchmarks: the cluster's program is built in the same one, which has to be quick.
.PHONY: bench-operator
bench-operator: setup ## Measure the operator beside LOCKS=1000,10000 locks, and HANDOFFS=100 (needs root)
	@if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    $(CLUSTER) build; \
	    $(CARGO) bench --profile quick --locked -p lockkeeper-operator --bench scale; \
	else \
	    echo "skipped: the operator with many locks (it needs a Kubernetes, and that root and Go)"; \
	fi

.PHONY: campaign
campaign: setup ## Inject faults for long, and check that no two holders overlap
	$(CARGO) run --profile quick --locked -p lockkeeper-e2e --bin lockkeeper-campaign -- $(ARGS)

.PHONY: demo
demo: setup ## Show three workers under one lock, what goes wrong, and who ran when
	@echo "Building (the first time about three minutes) ..."
	# One package at a time: what is built for both at once would be built again for each alone.
	$(CARGO) build --locked -p lockkeeper-sidecar --bin lockkeeper
	$(CARGO) build --locked -p lockkeeper-e2e --bins
	$(CARGO) run --quiet --locked -p lockkeeper-e2e --bin lockkeeper-demo -- $(ARGS)

.PHONY: cluster-build
cluster-build: setup ## Build Kubernetes for the test cluster: 8 to 10 minutes, once per machine
	$(CLUSTER) build

.PHONY: cluster-up
cluster-up: setup ## Start a Kubernetes cluster on this machine, and tell how to use it (needs root)
	$(CLUSTER) up $(ARGS)

.PHONY: cluster-down
cluster-down: ## End that cluster, and remove every trace of it
	$(CLUSTER) down

.PHONY: clean
clean: ## Remove everything that was built
	$(CARGO) clean
	rm -rf e2e/java/target
