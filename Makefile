# Every command of the project. `make` alone shows them.
#
#   STACK=<name>     the stack that a command is about; without it the local one
#   SETUP_SYSTEM=1   install missing Debian packages too (root); CI sets it
#   GPU_TRAINING_NODES=machine|process   what local nodes are made of; machines where they can be
#   PYTHON=python3   any Python from 3.10 on; everything else is set up by the project

PYTHON ?= python3
STACK ?= local
TOOLCHAIN = $(PYTHON) -m localcloud.toolchain
PROGRAM = $(TOOLCHAIN) exec program
WORKBENCH = $(TOOLCHAIN) exec workbench

.DEFAULT_GOAL := help
.PHONY: help setup up down status doctor pin-image logs connect rehearse faults preview catalog release bench test check lock clean

help: ## show this list
	@echo 'gpu-training: a GPU training environment on AWS that proves itself before it trains, and runs whole on this machine.'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Begin with `make up`: no AWS account, no Docker, nothing installed before; the first time takes minutes.'
	@echo 'Options: STACK=dev|staging|prod, JSON=1 or DIFF=1 (preview), SETUP_SYSTEM=1 (system packages).'

setup: ## get every tool the project needs into ~/.cache/gpu-training, and nothing else
	@$(TOOLCHAIN) ensure all

up: ## bring up the local stack, publish the sample dataset, train on two nodes, and show the result
	@$(WORKBENCH) -m localcloud.up --stack $(STACK)

down: ## destroy the local stack and stop everything that runs; FORCE=1 also where the destroy failed
	@$(WORKBENCH) -m localcloud.down --stack '$(STACK)' $(if $(FORCE),--force)

status: ## what runs now: the local stack, or with STACK=x nodes, alarms, run and cost of one in an account; JSON=1
	@$(WORKBENCH) -m $(if $(filter local,$(STACK)),localcloud.status,ops.status) --stack '$(STACK)' \
		$(if $(filter local,$(STACK)),,$(if $(JSON),--json))

doctor: ## ask the account what STACK=x needs of it: quotas, offerings, images, a dry-run launch of each template; JSON=1
	@$(WORKBENCH) -m ops.doctor --stack '$(STACK)' $(if $(JSON),--json)

pin-image: ## write into the file of STACK=x which image its SSM parameters hold today; GROUP=name, JSON=1
	@$(WORKBENCH) -m ops.pin_image --stack '$(STACK)' $(if $(GROUP),--group $(GROUP)) $(if $(JSON),--json)

logs: ## what nodes logged, by time; STACK=x RUN=name NODE=i-… SINCE=1h FOLLOW=1 JSON=1
	@$(WORKBENCH) -m ops.logs --stack '$(STACK)' $(if $(RUN),--run $(RUN)) $(if $(NODE),--node $(NODE)) \
		$(if $(SINCE),--since $(SINCE)) $(if $(FOLLOW),--follow) $(if $(JSON),--json)

connect: ## a shell on a node of STACK=x by Session Manager; NODE=i-…, PORT=8888 forwards a port instead
	@$(WORKBENCH) -m ops.connect --stack '$(STACK)' $(if $(NODE),--node $(NODE)) $(if $(PORT),--port $(PORT)) \
		$(if $(LOCAL_PORT),--local-port $(LOCAL_PORT))

rehearse: ## interrupt one local spot node and report what that costs
	@$(WORKBENCH) -m localcloud.rehearse

faults: ## every fault of the laboratory on booted nodes, judged; writes docs/faults.md; ARGS='--only NAME', '--list'; without ARGS also a kill at every stage of a save
	@$(WORKBENCH) -m localcloud.faults $(ARGS)
	@$(if $(ARGS),,SAVE_SWEEP=all $(WORKBENCH) -m pytest tests/trainer/test_save_sweep.py)

preview: ## what `pulumi up` would do: real engine, policies, no credentials; STACK=dev|staging|prod|local|examples/NAME
	@$(PROGRAM) -m localcloud.preview $(STACK) $(if $(JSON),--json) $(if $(DIFF),--diff)

catalog: ## the GPU instance types that are known; GPUS=8 GIB=80 EFA=1 BLOCK=1 ARCH=arm64 REGION=us-west-2, JSON=1; CHECK=1 asks EC2
	@$(WORKBENCH) -m ops.catalog $(if $(GPUS),--gpus $(GPUS)) $(if $(GIB),--gib $(GIB)) $(if $(EFA),--efa) \
		$(if $(BLOCK),--capacity-block) $(if $(ARCH),--architecture $(ARCH)) $(if $(REGION),--region $(REGION)) \
		$(if $(JSON),--json) $(if $(CHECK),--check)

release: ## build the trainer's release for the nodes into dist/, where the five newest are kept; TORCH=cp312 adds torch
	@$(PROGRAM) -m localcloud.release $(if $(TORCH),--torch $(TORCH))

bench: ## speed against limits and other tools; ONLY='data training' runs some parts; JSON=1
	@$(WORKBENCH) -m benchmarks $(if $(JSON),--json) $(if $(ONLY),--only $(ONLY)) $(ARGS)

test: ## run all tests; ARGS='tests/unit -k plan' runs some
	@$(WORKBENCH) -m pytest $(ARGS)

check: ## formatter, linter, types, shell, workflow and alert rule checks
	@$(WORKBENCH) -m localcloud.check

lock: ## resolve requirements/*.in into locked files; UPGRADE=1 takes the newest versions
	@$(TOOLCHAIN) lock $(if $(UPGRADE),--upgrade)

clean: ## remove what was built in this checkout; the cache folder stays
	@rm -rf dist .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
