#!/bin/bash
# OmniDocBench, from its download to the score: images of pages, and what is on them. The scorer needs Python 3.10.
# It ends with 3 if more pages failed than allowed: the score is then of pages that were not read, too.
# Formulas are compared letter by letter: CDM, which draws them, needs TeX and more (metrics/cdm/README.md there).
set -e
/opt/batchocr/bin/hf download opendatalab/OmniDocBench --repo-type dataset --local-dir /data/omnidocbench
/opt/batchocr/bin/batchocr run /data/omnidocbench/images --model /models/mineru --out /data/out/omnidocbench.parquet ||
    failed=$?
[ "${failed:-3}" = 3 ]
/opt/batchocr/bin/batchocr export /data/out/omnidocbench.parquet --format pages --page-names '{stem}.md' \
    --to /data/omnidocbench/batchocr
[ -e /data/scorer ] || git clone --depth 1 https://github.com/opendatalab/OmniDocBench /data/scorer
python3.10 -m venv /data/scorer/venv
/data/scorer/venv/bin/pip install -r /data/scorer/requirements.txt
cat > /data/scorer/batchocr.yaml << END
end2end_eval:
  metrics:
    text_block: {metric: [Edit_dist]}
    display_formula: {metric: [Edit_dist]}
    table: {metric: [TEDS, Edit_dist]}
    reading_order: {metric: [Edit_dist]}
  dataset:
    dataset_name: end2end_dataset
    ground_truth: {data_path: /data/omnidocbench/OmniDocBench.json}
    prediction: {data_path: /data/omnidocbench/batchocr}
    match_method: quick_match
END
cd /data/scorer
venv/bin/python pdf_validation.py --config batchocr.yaml
exit "${failed:-0}"
