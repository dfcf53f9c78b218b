# How the static binaries are built that `make release` and `make dist` make.

# Where cargo builds, and where it keeps the crates of others.
CARGO_TARGET_DIR ?= target
CARGO_HOME ?= $(HOME)/.cargo
# What static binaries are built for: this machine, or with TARGET=aarch64-unknown-linux-gnu another one.
HOST := $(shell uname -m)
TARGET := $(HOST)-unknown-linux-gnu
MACHINE := $(firstword $(subst -, ,$(TARGET)))
is-foreign := $(filter-out $(HOST),$(MACHINE))
# The profile of Cargo.toml: `release`, or `trial` for the images of tests.
PROFILE ?= release
STATIC := $(CARGO_TARGET_DIR)/$(TARGET)/$(PROFILE)/lockkeeper
OPERATOR := $(CARGO_TARGET_DIR)/$(TARGET)/$(PROFILE)/lockkeeper-operator
PLUGIN := $(CARGO_TARGET_DIR)/$(TARGET)/$(PROFILE)/kubectl-lockkeeper
# The C library inside; no tables for unwinding the stack, see the script; random numbers from the system call, since a
# static binary does not find the C library's function and would need /dev/urandom. On x86-64 the addresses to relocate
# as a bitmap (glibc 2.36 or newer, which the build tries out by running the binary); on arm64 Rust's static binaries are
# at fixed addresses, and have none. For another machine its compiler, as Debian calls it.
# No path of this machine is in the binary, so that it is the same wherever it is built (`make test-dist`).
link-arg = -C link-arg=-Wl,$(1)
comma := ,
remap = --remap-path-prefix=$(abspath $(1))=$(2)
STATIC_FLAGS := -C target-feature=+crt-static \
    $(if $(filter x86_64,$(MACHINE)),$(call link-arg,-z$(comma)pack-relative-relocs)) \
    $(call link-arg,-T$(comma)sidecar/static.ld) $(call link-arg,--no-eh-frame-hdr) \
    --cfg getrandom_backend="linux_getrandom" \
    $(call remap,$(CURDIR),/src) $(call remap,$(CARGO_TARGET_DIR),/target) $(call remap,$(CARGO_HOME),/cargo) \
    $(if $(is-foreign),-C linker=$(MACHINE)-linux-gnu-gcc)
build-static = env -u RUSTC_WORKSPACE_WRAPPER RUSTFLAGS='$(STATIC_FLAGS)' $(CARGO) build --profile $(PROFILE) --locked --target $(TARGET)
# A binary for another machine is tried out by `make test-dist`.
try = $(if $(is-foreign),true,$(1) --version)
