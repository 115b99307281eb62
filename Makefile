# What a newcomer runs: `make demo`, `make test`. The rest is for developers; `make help` lists it.

CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: help build demo test lint test-cargo test-foreign test-sim image compose-test bench bench-footprint clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

build: ## build the release binary, target/release/sluice
	$(CARGO) build --release -p sluice-broker

demo: build ## the main job on real data: one partition, many workers, every key in order
	target/release/sluice demo

test: lint test-cargo test-foreign ## everything that CI runs

lint: ## formatting and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

test-cargo: ## tests that need only cargo
	$(CARGO) test --workspace --exclude sluice-integration-tests
	$(CARGO) test -p sluice-integration-tests

image: ## build both images of docker-compose.yml
	docker/stage.sh
	docker compose --profile tools build || docker-compose --profile tools build

compose-test: ## the broker in containers, with the real tools, killed and started again
	docker/compose-test.sh

clean: ## remove what was built
	$(CARGO) clean
