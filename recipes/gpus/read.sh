#!/bin/bash
# Reads /data/in on every GPU of this machine, in one run, and compares the table with the input. Look at the machine
# first: `batchocr doctor --model /models/mineru` names each GPU, and loads the model on all of them.
#
#   nohup bash read.sh &
#
# A GPU that fails or hangs costs the run a restart of its engine, and one that cannot be used is left out. What ends a
# run all the same, such as a kill, or that no GPU is left, is followed by another one, which continues.
#
# To leave some GPUs to others, name those to take: --device cuda:0,cuda:1. Several machines divide the documents with
# --shard, one run on each, as in ../slurm and ../kubernetes.

# What stops this script stops the run, which takes up to a minute; a terminal's Ctrl-C reaches both.
run='' stopped=''
trap 'stopped=75; kill -TERM "$run" 2>/dev/null || exit 75' TERM
trap 'stopped=130; kill -0 "$run" 2>/dev/null || exit 130' INT
for _ in 1 2 3 4 5 6; do
    /opt/batchocr/bin/batchocr run /data/in --model /models/mineru --device auto --out /data/out/results.parquet &
    run=$!
    while wait "$run"; kill -0 "$run" 2>/dev/null; do :; done # a signal ends `wait`, too
    wait "$run"
    code=$?
    [ "$code" = 0 ] || [ -z "$stopped" ] || exit "$stopped"
    case $code in
        0) exec /opt/batchocr/bin/batchocr verify /data/out/results.parquet /data/in ;;
        3) /opt/batchocr/bin/batchocr verify /data/out/results.parquet /data/in; exit 3 ;;
        1 | 5 | 6 | 75 | 134 | 137 | 139 | 143) sleep 60 ;; # may be temporary; 75: a store does not answer; above 128: killed
        *) exit "$code" ;;
    esac
done
exit "$code"
