# The main targets: `make demo` shows Hasat with simulated upstreams, `make test` runs all checks.
.PHONY: help demo test site bench format lock setup setup-runtime clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' $(MAKEFILE_LIST)

setup: ## create or update .venv (the other targets do it themselves)
	@PYTHON='$(PYTHON)' scripts/setup

setup-runtime:
	@PYTHON='$(PYTHON)' scripts/setup runtime

demo: setup-runtime ## start everything on this machine, without any account
	@.venv/bin/hasat demo

test: setup ## format, lint, types, import contract and every test level
	@scripts/test

site: setup ## build the documentation as a site, in English and Turkish
	@.venv/bin/python scripts/site.py site

bench: setup ## run every script in bench/ and write the page of its figures
	@scripts/bench

format: setup ## format with ruff and apply its fixes
	@.venv/bin/ruff format && .venv/bin/ruff check --fix

lock: setup ## update requirements.txt and requirements-dev.txt
	@scripts/lock --upgrade

clean: ## remove .venv, caches and the demo's data
	@rm -rf .venv .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
