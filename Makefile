# The menu. What has logic is in `xtask/` and `deploy/setup.sh`.

DAIS_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/dais
export DAIS_CACHE
export PATH := $(DAIS_CACHE)/bin:$(PATH)
CHROMIUM ?= $(firstword $(shell command -v chromium chromium-browser google-chrome google-chrome-stable))
ifneq ($(CHROMIUM),)
export CHROMIUM
endif

.PHONY: help run test lint nightly bench bench-instructions fmt console
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 28

run: ## two instances, a private Redis and the console on this machine
	@deploy/setup.sh run && cargo xtask console && exec cargo run --package coordinator -- dev

test: ## lint, then every test, with real servers, processes and browsers
	@deploy/setup.sh test && cargo xtask test

lint: ## everything that reads the code without running it
	@deploy/setup.sh test && cargo xtask lint

nightly: ## the room cell through 100,000 random lives of 200 commands
	@DAIS_NIGHTLY=1 cargo test --package room-cell --test cell -- random

bench: ## figures beside those of the Node.js peer, and their page; RECORD=yes puts it into docs/
	@deploy/setup.sh test && cargo xtask console && cargo xtask peer && cargo xtask bench $(if $(RECORD),--record)

bench-instructions: ## instructions of the core paths against the record; RECORD=yes writes it
	@cargo xtask bench-instructions $(if $(RECORD),--record)

fmt: ## Rust and TypeScript into their usual form
	@cargo xtask format

console: ## the pages that the instance serves
	@cargo xtask console
