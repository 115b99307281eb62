# What a newcomer runs: `make demo`, `make test`. The rest is for developers; `make help` lists it.

CARGO ?= cargo
# Where cargo puts what it builds, as it finds it itself.
TARGET = $(or $(CARGO_TARGET_DIR),target)
export CARGO_TERM_COLOR ?= auto
# Nothing is built twice in CI: what a second build would start from only takes room there.
ifdef CI
export CARGO_INCREMENTAL ?= 0
endif

.PHONY: help build demo test lint test-cargo test-foreign test-mixed test-share-chaos test-garbage test-crash test-model test-sim test-share-full test-sim-storage image compose-test bench bench-storage bench-restart bench-footprint bench-share bench-kafka-produce bench-kafka-consume bench-kafka-share clean

help: ## list the targets
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

build: ## build the release binary, target/release/sluice
	$(CARGO) build --release -p sluice-broker

demo: build ## the main job on real data: one partition, many workers, every key in order
	$(TARGET)/release/sluice demo

test: lint test-cargo test-foreign ## everything that CI runs

lint: ## formatting and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features sluice-integration-tests/foreign -- -D warnings

test-cargo: ## tests that need only cargo
	$(CARGO) test --workspace --exclude sluice-integration-tests
	$(CARGO) test -p sluice-integration-tests

# Each of these tests runs several programs at once: more than one test at a time only makes them slow.
FOREIGN = $(CARGO) test -p sluice-integration-tests --features foreign

test-foreign: ## tests with Java, Go, Python and Node clients and with Apache Kafka's tools
	$(FOREIGN) --test tools --test clients_plain --test clients_rdkafka --test clients_mixed_key_order \
	  --test kafka_data --test kafka_share_group_reorders --test kafka_share_scenarios --test kafka_share_tools \
	  --test sync_before_answer -- --test-threads=2

test-mixed: ## the mixed-client key-order test, with and without a crash of the broker, ROUNDS times
	SLUICE_MIXED_REPEAT=$(or $(ROUNDS),20) $(FOREIGN) --test clients_mixed_key_order -- --test-threads=1 --nocapture

test-share-chaos: build ## all share clients in one group for SECONDS, members churn, the broker is killed every minute
	SLUICE_BIN=$(abspath $(TARGET))/release/sluice SLUICE_CHAOS_SECONDS=$(or $(SECONDS),1800) \
	  $(FOREIGN) --test share_chaos -- --nocapture

test-sim: ## the simulation over SEEDS seeds from FROM on, or one SEED with its whole trace
	SLUICE_SIM_SEEDS=$(or $(SEEDS),10000) SLUICE_SIM_FROM=$(FROM) SLUICE_SIM_SEED=$(SEED) \
	  $(CARGO) test --profile sim -p sluice-integration-tests \
	  --test sim_smoke --test sim_determinism --test sim_checks_itself -- --nocapture

test-share-full: ## the cases of share groups that need a million records and more, whole
	SLUICE_SHARE_FULL=1 $(CARGO) test --profile sim -p sluice-coordinator --test share -- --nocapture k34_ k37_ k63_ k69_

test-model: ## the share-partition against a simple model: random schedules of STEPS steps in all, from SEED on
	SLUICE_MODEL_STEPS=$(or $(STEPS),1000000) SLUICE_MODEL_SEED=$(SEED) $(CARGO) test --profile sim -p sluice-coordinator \
	  --test share -- --nocapture o1_to_o5_hold_over_many_steps

test-sim-storage: ## the simulation of storage alone over SEEDS seeds from FROM on, or one SEED with its whole trace
	SLUICE_STORAGE_SEEDS=$(or $(SEEDS),100000) SLUICE_STORAGE_FROM=$(FROM) SLUICE_STORAGE_SEED=$(SEED) \
	  $(CARGO) test --profile sim -p sluice-storage --test sim -- --nocapture

test-garbage: build ## 1,000 connections that send garbage for a minute leave the broker answering, with flat memory
	SLUICE_BIN=$(abspath $(TARGET))/release/sluice SLUICE_GARBAGE_SECONDS=$(or $(SECONDS),60) \
	  $(CARGO) test -p sluice-integration-tests --test hostile_garbage -- --nocapture

test-crash: build ## a loaded broker is killed ROUNDS times: nothing lost, nothing doubled, every file checks
	SLUICE_BIN=$(abspath $(TARGET))/release/sluice SLUICE_CRASH_ROUNDS=$(or $(ROUNDS),200) \
	  $(CARGO) test -p sluice-integration-tests --test crash -- --nocapture

bench: ## criterion benches of the parts
	$(CARGO) bench -p sluice-benches

bench-storage: ## those of the log alone: append beside a bare write, read, sync, key index
	$(CARGO) bench -p sluice-benches --bench log_append --bench log_read --bench key_index

bench-footprint: build ## start-up time and idle memory, beside Apache Kafka's
	$(BENCH) footprint

# Each bench is a program: with Sluice alone, or with Apache Kafka beside it.
BENCH = SLUICE_BIN=$(abspath $(TARGET))/release/sluice $(CARGO) run -q --release -p sluice-benches --bin

bench-kafka-produce: build ## throughput, CPU and durable acknowledgements beside Apache Kafka's
	$(BENCH) throughput -- produce
	$(BENCH) durable

bench-kafka-consume: build ## throughput, CPU and end-to-end latency beside Apache Kafka's
	$(BENCH) throughput -- consume
	$(BENCH) latency

bench-share: build ## a stuck key, a million waiting keys, amplification; PART=stuck runs only that
	$(BENCH) share -- $(or $(PART),stuck amplification million)

bench-kafka-share: build ## share groups beside Apache Kafka's: perf cap acks join makespan, or only PART
	$(CARGO) build --release -p sluice-integration-tests --bin key_share_probe
	$(BENCH) share -- $(or $(PART),perf cap acks join makespan)

bench-restart: build ## the start of a broker that has much data
	$(BENCH) restart

image: ## build both images of docker-compose.yml
	docker/stage.sh
	docker compose --profile tools build || docker-compose --profile tools build

compose-test: ## the broker in containers, with the real tools, killed and started again
	docker/compose-test.sh

clean: ## remove what was built
	$(CARGO) clean
