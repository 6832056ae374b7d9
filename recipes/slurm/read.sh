#!/bin/bash
# Eight jobs that divide the documents among them, each with a table of its own. One that runs out of time, or is
# preempted, is queued again and continues. Once all have ended, well or not, their tables are compared with the input:
#
#   job=$(sbatch --parsable read.sh) && sbatch --dependency="afterany:$job" verify.sh
#
#SBATCH --job-name=batchocr
#SBATCH --array=1-8
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
# With GPUs also --gpus-per-task=4, or as many as a machine has: a run takes all that its job may use.
#SBATCH --time=04:00:00
#SBATCH --output=batchocr-%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
# SIGTERM three minutes before the time limit: batchocr gives the pages in flight one of them, and exits with 75.
# Without it there would be only KillWait between SIGTERM and SIGKILL, half a minute by default.
#SBATCH --signal=TERM@180

shards=8 # the end of --array: `sbatch --array=3 read.sh` then still reads the third of eight

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" /opt/batchocr/bin/batchocr run /data/in --model /models/mineru \
    --shard "$SLURM_ARRAY_TASK_ID/$shards" --out "/data/out/part-$SLURM_ARRAY_TASK_ID.parquet" \
    --stop-after 3h50m --log-format json
code=$?

case $code in
    75 | 130) [ "${SLURM_RESTART_COUNT:-0}" -ge 50 ] || scontrol requeue "$SLURM_JOB_ID" ;; # stopped before the end
    1 | 5 | 6 | 134 | 137 | 139 | 143) [ "${SLURM_RESTART_COUNT:-0}" -ge 5 ] || scontrol requeue "$SLURM_JOB_ID" ;; # may be temporary; above 128: it was killed
esac
exit "$code"
