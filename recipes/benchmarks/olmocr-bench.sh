#!/bin/bash
# olmOCR-bench, from its download to the score: 1,400 PDFs of one page, and some 7,000 tests of what is, and is not, in
# their text. Another folder in its form may be named instead: bash olmocr-bench.sh FOLDER
# It ends with 3 if more pages failed than allowed: the score is then of pages that were not read, too.
set -e
bench=${1:-/data/olmocr-bench/bench_data}
[ $# -gt 0 ] || /opt/batchocr/bin/hf download allenai/olmOCR-bench --repo-type dataset --local-dir /data/olmocr-bench
/opt/batchocr/bin/batchocr run "$bench/pdfs" --model /models/mineru --out /data/out/olmocr-bench.parquet || failed=$?
[ "${failed:-3}" = 3 ]
/opt/batchocr/bin/batchocr export /data/out/olmocr-bench.parquet --format pages --to "$bench/batchocr" \
    --page-names '{stem}_pg{page}_repeat1.md'
# The scorer has an environment of its own, and draws formulas in a browser.
python3 -m venv /data/olmocr
/data/olmocr/bin/pip install 'olmocr[bench]'
/data/olmocr/bin/playwright install --with-deps chromium
/data/olmocr/bin/python -m olmocr.bench.benchmark --dir "$bench" --candidate batchocr
exit "${failed:-0}"
