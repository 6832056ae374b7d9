# Needs make and Python 3.11 to 3.14; everything else is installed into .venv.

PYTHON ?= python3
BIN := .venv/bin
# A file's tests share what they set up, in one process. Each of the two has one thread for torch: more take a seventh
# more of all cores' time. Bytecode is kept, whatever the shell says: many processes import the package.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} \
    $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder
INSTALLED := .venv/installed
WITH_TESTS := .venv/installed-with-tests

.PHONY: dist options quick sample test test-all

# One of the sample documents is broken on purpose; --max-page-error-rate 1 keeps that from being an error here.
sample: $(INSTALLED)
	$(BIN)/batchocr run sample_data/documents --model sample_data/model --password batchocr \
	    --out sample.parquet --overwrite --max-page-error-rate 1
	@echo
	$(BIN)/batchocr export sample.parquet --password batchocr --to texts --format md
	$(BIN)/batchocr view sample.parquet --password batchocr --out review.html
	@echo; echo "The first document, in texts/article.md:"; echo
	@head -n 7 texts/article.md
	@echo; echo "All of it, its figures beside it: texts/    To look through the pages: review.html"
	@echo "To read your own:  .venv/bin/batchocr run FILE... --model sample_data/model --out mine.parquet"

# What a change needs while it is being made.
quick: $(WITH_TESTS)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(PYTEST) -m "not slow and not long"

test: $(WITH_TESTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

# The long forms too, with the corpus if BATCHOCR_CORPUS names it: before a release, most of an hour.
test-all: export BATCHOCR_FULL = 1
test-all: test

# The wheel and the source distribution that it is built from, in dist/. Nothing is fetched.
dist: $(WITH_TESTS)
	$(BIN)/python -m build --no-isolation

# batchocr/options.py and docs/options.md, after a change to an option in batchocr/config.py; the schemas in docs/.
options: $(WITH_TESTS)
	$(BIN)/python -m tests.support.derived

# By a path, so that `import batchocr` also finds it from a folder in which the clone lies.
$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --config-settings editable_mode=compat --editable .
	touch $@

# What the tests need beside that: browsers, Ray, other libraries' readers.
$(WITH_TESTS): $(INSTALLED)
	$(BIN)/pip install --quiet --config-settings editable_mode=compat --editable '.[test]'
	touch $@
