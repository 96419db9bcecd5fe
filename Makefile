# Each target installs what it needs on a Debian machine, says so, and is quick when nothing is missing.

export PATH := $(HOME)/.cargo/bin:$(PATH)
TOOLS := $(or $(THERMOCLINE_TOOLS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/thermocline/tools)
KERNEL ?= 6.12
KERNELS ?= 6.12 newest

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench soak lab docs build plugin

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the thermocline command, in target/release
	@scripts/need build bpf
	cargo build --release -p thermocline

docs: ## the book, in docs/book
	@scripts/need build bpf docs
	cargo run -q -p thermocline -- config --markdown > docs/src/config-keys.md
	$(TOOLS)/bin/mdbook build docs

lint: ## formatting, clippy, licences and sources, the book
	@scripts/need build bpf deny docs
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(TOOLS)/bin/cargo-deny --all-features check --hide-inclusion-graph licenses bans sources
	$(TOOLS)/bin/mdbook build docs
