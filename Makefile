# Everything that people and CI do with this repository. `make` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --warn-undefined-variables

CARGO ?= cargo
# Features of the released binary.
FEATURES ?= tls
# 1: only the first act of `make demo`.
ACT ?=
# Arguments for `make bench`, `make campaign`, `make fuzz`, `make rules`, `make cluster-up` and the first act of `make demo`.
ARGS ?=
TARGET := $(shell uname -m)-unknown-linux-gnu
STATIC := target/$(TARGET)/release/lockkeeper
OPERATOR := target/$(TARGET)/release/lockkeeper-operator
# The C library inside; addresses to relocate as a bitmap (glibc 2.36 or newer, which the build tries out
# by running the binary); no tables for unwinding the stack, see the script; random numbers from the system
# call, since a static binary does not find the C library's function and would need /dev/urandom.
link-arg = -C link-arg=-Wl,$(1)
comma := ,
STATIC_FLAGS := -C target-feature=+crt-static $(call link-arg,-z$(comma)pack-relative-relocs) \
    $(call link-arg,-T$(comma)$(CURDIR)/sidecar/static.ld) $(call link-arg,--no-eh-frame-hdr) \
    --cfg getrandom_backend="linux_getrandom"
BINARY := $(CURDIR)/$(STATIC)
# What images are called: REGISTRY/REPOSITORY.
IMAGES ?= lockkeeper
REVISION = $(shell git rev-parse HEAD 2>/dev/null)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# The authorities that the operator's image brings.
CA_CERTIFICATES ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt))
CLUSTER := $(CARGO) run --quiet --locked -p lockkeeper-e2e --bin lockkeeper-cluster --
CRATES := lockkeeper-lock lockkeeper-sidecar lockkeeper-crds lockkeeper-operator

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

.PHONY: release-operator
release-operator: ## Build the operator as a static binary, and tell its size
	RUSTFLAGS='$(STATIC_FLAGS)' $(CARGO) build --release --locked \
	    --target $(TARGET) -p lockkeeper-operator --bin lockkeeper-operator
	@$(OPERATOR) --version
	@echo "$(OPERATOR): $$(stat -c %s $(OPERATOR)) bytes"

.PHONY: release-plugin
release-plugin: ## Build the plug-in of kubectl as a static binary
	RUSTFLAGS='$(STATIC_FLAGS)' $(CARGO) build --release --locked \
	    --target $(TARGET) -p lockkeeper-operator --bin kubectl-lockkeeper
	@echo "target/$(TARGET)/release/kubectl-lockkeeper: put it on the path"

.PHONY: image-contexts
image-contexts: release release-operator ## Put together in target/images what the images are made of
	@test -n "$(CA_CERTIFICATES)" || { echo "no bundle of authorities: install ca-certificates, or set CA_CERTIFICATES"; exit 64; }
	@rm -rf target/images/sidecar target/images/operator
	@install -D $(STATIC) target/images/sidecar/lockkeeper
	@install -D $(OPERATOR) target/images/operator/lockkeeper-operator
	@install -D -m 644 $(CA_CERTIFICATES) target/images/operator/ca-certificates.crt
	@for crate in sidecar operator; do cp $$crate/Dockerfile target/images/$$crate/; done

.PHONY: images
images: image-contexts sbom ## Build the images IMAGES/lockkeeper and IMAGES/lockkeeper-operator with buildah or docker
	@tool="buildah bud --isolation chroot"; \
	if docker info >/dev/null 2>&1; then tool="docker build"; fi; \
	for crate in sidecar operator; do \
	    name=lockkeeper; [ $$crate = sidecar ] || name=lockkeeper-operator; \
	    $$tool --target prebuilt --tag $(IMAGES)/$$name:$(VERSION) \
	        --build-arg VERSION=$(VERSION) --build-arg REVISION="$(REVISION)" target/images/$$crate; \
	done

# cargo-cyclonedx writes beside every manifest of the workspace.
sbom-of = SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct 2>/dev/null)" $(CARGO) cyclonedx --quiet --format json \
    --spec-version 1.5 --describe binaries --no-build-deps --target $(TARGET) --manifest-path $(1)/Cargo.toml $(2) \
    && mv $(1)/$(3)_bin.cdx.json target/images/$(3).cdx.json

.PHONY: sbom
sbom: ## Say in target/images/*.cdx.json what is in the images (CycloneDX)
	@$(CARGO) cyclonedx --version >/dev/null 2>&1 || $(CARGO) install cargo-cyclonedx --locked --debug --version '^0.5'
	@mkdir -p target/images
	@$(call sbom-of,sidecar,--features "$(FEATURES)",lockkeeper)
	@$(call sbom-of,operator,,lockkeeper-operator)
	@rm -f */*_bin.cdx.json
	@for file in target/images/*.cdx.json; do echo "$$file: $$(grep -c '"bom-ref"' $$file) parts"; done

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
	# And of the whole: lock, keeper and guard on a simulated ensemble and kernel.
	$(CARGO) test --profile quick --locked -p lockkeeper-simulation --test histories

.PHONY: lint
lint: deny lint-charts ## Check format, lints, documentation, charts, the product's crates alone, and the dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	# Private items too: most of this documentation is for those who work here.
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" \
	    $(CARGO) doc --workspace --all-features --no-deps --document-private-items --locked
	# In a workspace, a feature that one crate turns on is on for all: alone each that users build has to bring its own.
	for crate in $(CRATES); do $(CARGO) check --locked -p "$$crate"; done

.PHONY: lint-charts
lint-charts: setup ## Check the charts with helm
	@if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    $(CLUSTER) build; \
	    helm=$$($(CLUSTER) program helm | tail -1); \
	    $$helm lint --strict charts/lockkeeper-crds; \
	    for values in charts/lockkeeper/ci/*.yaml; do $$helm lint --strict charts/lockkeeper --values "$$values"; done; \
	else \
	    echo "skipped: helm lint (helm is built with the cluster, which needs root and Go)"; \
	fi

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

# Without optimisation it is there in half the time, and its work is short.
.PHONY: cargo-deny
cargo-deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install cargo-deny --locked --debug --version '^0.20'

.PHONY: crds
crds: ## Generate the resource's definition, its chart and its reference from crds/src
	$(CARGO) run --locked -p lockkeeper-crds -- .

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: bench
bench: setup release ## Measure handoffs beside other clients, a return after an outage, what the released binary takes, and the operator
	$(CARGO) bench -p lockkeeper-e2e --locked --bench handoff --bench child --bench returning -- $(ARGS)
	$(CARGO) bench -p lockkeeper-sidecar --locked --bench footprint --no-run
	$(CARGO) run --quiet --locked -p lockkeeper-e2e --bin lockkeeper-ensemble -- --servers 3 -- \
	    bash -c 'LOCKKEEPER_BINARY=$(BINARY) LOCKKEEPER_CONNECT=$$ZOOKEEPER_CONNECT \
	        $(CARGO) bench --quiet -p lockkeeper-sidecar --locked --bench footprint'
	@$(MAKE) --no-print-directory bench-operator bench-admission bench-pods

# Not cargo's profile for benchmarks: the cluster's program is built in the same one, which has to be quick.
.PHONY: bench-operator
bench-operator: setup ## Measure the operator beside LOCKS=1000,10000 locks, and HANDOFFS=100 (needs root)
	@if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    $(CLUSTER) build; \
	    $(CARGO) bench --profile quick --locked -p lockkeeper-operator --bench scale; \
	else \
	    echo "skipped: the operator with many locks (it needs a Kubernetes, and that root and Go)"; \
	fi

.PHONY: bench-admission
bench-admission: setup ## Measure how long a pod's admission takes, on a real API server (needs root)
	@if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    $(CLUSTER) build; \
	    $(CARGO) bench --profile quick --locked -p lockkeeper-operator --bench admission -- $(ARGS); \
	else \
	    echo "skipped: admission (it needs a Kubernetes, and that root and Go)"; \
	fi

.PHONY: bench-pods
bench-pods: setup ## Measure handoffs, faults and starts of pods on two nodes: a quarter of an hour (needs root)
	@if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    $(CLUSTER) build; \
	    $(CARGO) bench --profile dev --locked -p lockkeeper-e2e --bench pods; \
	else \
	    echo "skipped: pods (they need a Kubernetes, and that root and Go)"; \
	fi

.PHONY: campaign
campaign: setup ## Inject faults for long, and check that no two holders overlap
	$(CARGO) run --profile quick --locked -p lockkeeper-e2e --bin lockkeeper-campaign -- $(ARGS)

.PHONY: fuzz
fuzz: ## Feed every parser of what others write by coverage, ten minutes each (ARGS="--minutes 1 --target NAME")
	$(CARGO) run --quiet --locked -p lockkeeper-fuzz --bin lockkeeper-fuzz -- $(ARGS)

.PHONY: rules
rules: ## Take each safety rule out of the code in turn, and tell which test misses it
	@$(CARGO) run --quiet --locked -p lockkeeper-rules -- $(ARGS)

.PHONY: demo
demo: setup ## Show workers under one lock while things break, then pods on Kubernetes (ACT=1: only the first)
	@echo "Building (the first time about three minutes) ..."
	# One package at a time: what is built for both at once would be built again for each alone.
	$(CARGO) build --locked -p lockkeeper-sidecar --bin lockkeeper
	$(CARGO) build --locked -p lockkeeper-e2e --bins
	$(CARGO) run --quiet --locked -p lockkeeper-e2e --bin lockkeeper-demo -- $(ARGS)
	@if [ "$(ACT)" = 1 ]; then \
	    :; \
	elif [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    echo "The second act, on Kubernetes. It is built the first time: 8 to 10 minutes."; \
	    $(CLUSTER) build; \
	    $(CARGO) run --quiet --locked -p lockkeeper-e2e --bin lockkeeper-demo -- --act 2; \
	else \
	    echo "The second act, on Kubernetes, is left out: it needs root and Go."; \
	fi

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
