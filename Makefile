# Each target installs what it needs on a Debian machine, says so, and is quick when nothing is missing.

export PATH := $(HOME)/.cargo/bin:$(PATH)
TOOLS := $(or $(THERMOCLINE_TOOLS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/thermocline/tools)
KERNEL ?= 6.12
WORKLOAD ?= redis
REPEATS ?= 3
FUZZ_SECONDS ?= 600
BINARY_BYTES_MAX := 15000000
LAB := target/release/lab
PYTHON := $(TOOLS)/python/bin

.DEFAULT_GOAL := help
.PHONY: help build demo test lint bench soak lab lab-compare lab-spill lab-share docs deb package tarball helm lab-programs fuzz python python-ray wheel

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the thermocline command, in target/release
	@scripts/need build bpf
	cargo build --release -p thermocline

# What runs inside a guest is built optimised: emulation is slow enough. All at once, so that tests find all of it built.
lab-programs:
	@scripts/need build bpf lab
	cargo build --release --workspace --bins --examples
	$(MAKE) -s -C lab/plugin
	$(LAB) fetch

deb: package ## a Debian package with a systemd service, in target/debian

# Its own build: the whole program is optimised at once, which takes some minutes.
package:
	@scripts/need build bpf deb
	cargo build --profile dist -p thermocline
	@size=$$(stat -c %s target/dist/thermocline); [ $$size -le $(BINARY_BYTES_MAX) ] || \
		{ echo "target/dist/thermocline has $$size bytes; a package takes $(BINARY_BYTES_MAX)" >&2; exit 1; }
	target/dist/thermocline generate target/deb
	deploy/configuration target/dist/thermocline > target/deb/thermocline.toml
	target/dist/thermocline config schema > target/deb/thermocline.schema.json
	rm -f target/debian/thermocline_*.deb
	$(TOOLS)/bin/cargo-deb --quiet -p thermocline --profile dist --no-build --no-strip

tarball: package ## the same for machines without dpkg, with install.sh, in target/tarball
	deploy/tarball target/debian/thermocline_*.deb target/tarball

demo: lab-programs ## Redis on CXL gets its hot pages promoted, in the lab; leaves a picture in target/demo
	@scripts/need picture
	$(LAB) demo --kernel $(KERNEL)

lab: lab-programs ## a shell in a tiered guest; CMD='...' runs a command; KERNEL=6.1|6.12|6.18|newest, OPTIONS='--memory ...'
ifdef CMD
	@$(LAB) run --kernel $(KERNEL) $(OPTIONS) -- sh -c '$(subst ','\'',$(CMD))'
else
	@$(LAB) shell --kernel $(KERNEL) $(OPTIONS)
endif

lab-compare: lab-programs ## managers of memory beside each other; WORKLOAD=redis|memcached|postgresql|mariadb|hotcold|gups|bfs|bc, MANAGERS=none,numab2,..., REPEATS=3, OPTIONS=...
	@mkdir -p target/compare
	$(LAB) compare $(WORKLOAD) --kernel $(KERNEL) --repeats $(REPEATS) $(if $(MANAGERS),--managers $(MANAGERS)) \
		--json target/compare/$(WORKLOAD).json $(OPTIONS)

lab-spill: lab-programs ## S3's experiment: cold ballast fills DRAM, Redis spills to CXL; MANAGERS=dram-only,none,..., OPTIONS='--loads latest ...'
	@mkdir -p target/spill
	$(LAB) spill --kernel $(KERNEL) $(if $(MANAGERS),--managers $(MANAGERS)) --logs target/spill --json target/spill/runs.json $(OPTIONS)

lab-share: lab-programs ## Redis beside a hog that fills DRAM, with a share of DRAM and without; MANAGERS=alone,none,..., OPTIONS='--share 0.5 ...'
	@mkdir -p target/share
	$(LAB) share --kernel $(KERNEL) $(if $(MANAGERS),--managers $(MANAGERS)) --logs target/share --json target/share/runs.json $(OPTIONS)

# Tests need other features of libraries than the programs alone: what runs in guests is built with them, at once.
test: ## every test: units, properties, hostile input, and the lab on three kernels
	@scripts/need build bpf lab promtool
	cargo test --release --workspace --no-run
	$(MAKE) -s -C lab/plugin
	$(LAB) fetch
	cargo test --release --workspace --no-fail-fast
	$(MAKE) -s -C lab/plugin test
	$(MAKE) -s python

# Into a folder of its own, with all that checks it.
wheel:
	@scripts/need build python
	rm -f target/wheels/thermocline-*.whl
	cd python && $(PYTHON)/maturin build --quiet --release --locked --out ../target/wheels
	$(PYTHON)/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/wheels/thermocline-*.whl

# Python writes nothing into the tree. What is installed is what is tested: the sources are not where it is run.
python: export PYTHONDONTWRITEBYTECODE := 1
python: wheel ## the wheel for Python, in target/wheels: types, stubs, tests, and the book's example
	cd python && $(PYTHON)/mypy --cache-dir ../target/mypy
	cd target/wheels && $(PYTHON)/stubtest thermocline --concise --mypy-config-file ../../python/pyproject.toml
	cd target/wheels && $(PYTHON)/pytest -q -c ../../python/pyproject.toml ../../python/tests --ignore ../../python/tests/cluster

python-ray: export PYTHONDONTWRITEBYTECODE := 1
python-ray: wheel ## a sweep on a local Ray cluster of two workers, one of which is killed
	@scripts/need ray
	cd target/wheels && $(PYTHON)/pytest -q -c ../../python/pyproject.toml ../../python/tests/cluster

# $(call fuzz-target,NAME,LONGEST INPUT,MIB,OPTIONS): inputs found before, fuzz/seeds/NAME.tar.gz, are tried first.
define fuzz-target
	@mkdir -p fuzz/corpus/$(1)
	$(if $(wildcard fuzz/seeds/$(1).tar.gz),@tar -C fuzz/corpus/$(1) -xzf fuzz/seeds/$(1).tar.gz)
	PATH="$(TOOLS)/bin:$$PATH" cargo +nightly fuzz run $(1) fuzz/corpus/$(1) -- \
		-max_total_time=$(FUZZ_SECONDS) -max_len=$(2) -rss_limit_mb=$(3) $(4)
endef

fuzz: ## searches for input that breaks a law, FUZZ_SECONDS=600 each
	@scripts/need fuzz
	$(call fuzz-target,engine,2048,1024,-len_control=0)
	$(call fuzz-target,faults,4096,512)
	$(call fuzz-target,samples,4096,512)
	$(call fuzz-target,rings,2048,512)
	$(call fuzz-target,regions,4096,512)
	$(call fuzz-target,hotlist,2048,512)
	$(call fuzz-target,http,10240,512)
	$(call fuzz-target,control,4096,512)
	$(call fuzz-target,imports,4096,512)
	$(call fuzz-target,pods,4096,512)

# What only the lab needs is a feature of one crate, and BPF another: without either nothing of that crate may be unused.
lint: ## formatting, clippy, links in the documentation, licences and sources, the book
	@scripts/need build bpf deny docs
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	cargo clippy --release -p thermocline-linux --features bpf -- -D warnings
	cargo clippy --release -p thermocline-linux -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc -q --release --no-deps --workspace
	$(TOOLS)/bin/cargo-deny --all-features check --hide-inclusion-graph licenses bans sources
	$(TOOLS)/bin/mdbook build docs

# Apart from lint, since it takes Go to build Helm.
helm: ## the Helm chart: lint, what its values make of it, and the plain manifests are its own
	@scripts/need helm
	PATH="$(TOOLS)/bin:$$PATH:/usr/local/go/bin" deploy/helm/check

bench: ## figures beside their limits, in target/bench
	@scripts/need build picture
	cargo bench -p thermocline-core --bench observe
	cargo bench -p thermocline-sim --bench simulate
	cargo bench -p thermocline-linux --bench samples

soak: lab-programs ## what takes longer: fuzzing, many property cases, the full lab runs
	@scripts/need fuzz
	$(MAKE) fuzz
	PROPTEST_CASES=20000 cargo test --release -p thermocline-core
	$(MAKE) tarball
	$(MAKE) -s python-ray
	THERMOCLINE_SOAK=1 cargo test --release -p thermocline --bin thermocline attack -- --nocapture
	THERMOCLINE_SOAK=1 cargo test --release -p thermocline-core --test it machine_that_fails -- --nocapture
	THERMOCLINE_SOAK=1 cargo test --release -p thermocline-sim --test it machine_that_fails -- --nocapture
	THERMOCLINE_SOAK=1 cargo test --release -p thermocline-lab -- --nocapture

docs: ## the book, in docs/book
	@scripts/need build bpf docs
	cargo run -q --release -p thermocline -- config --markdown > docs/src/config-keys.md
	$(TOOLS)/bin/mdbook build docs
