#!/bin/bash
# Compares the tables of all jobs with the input: see read.sh. Exits with 3 if something is wrong.
#
#SBATCH --job-name=batchocr-verify
#SBATCH --ntasks=1
#SBATCH --mem=4G
#SBATCH --time=04:00:00
#SBATCH --output=batchocr-verify.log

srun /opt/batchocr/bin/batchocr verify '/data/out/part-*.parquet' /data/in
