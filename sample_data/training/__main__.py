"""`python -m sample_data.training --out FOLDER`: train the sample model, or continue training it, and export it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from sample_data.training.export import export
from sample_data.training.settings import SETTINGS
from sample_data.training.train import Training


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sample_data.training", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoint, loss curve and exported model")
    parser.add_argument("--setting", choices=SETTINGS, default="scratch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    parser.add_argument("--steps", type=int, help="length of the run")
    parser.add_argument("--minutes", type=float, help="length of the run by the clock, earlier parts counted in")
    parser.add_argument("--export", action="store_true", help="only export the folder's checkpoint")
    parser.add_argument("--from", type=Path, dest="begin_with", help="folder of an exported model to begin with")
    given = parser.parse_args()
    setting = replace(SETTINGS[given.setting], minutes=given.minutes)
    setting = replace(setting, steps=given.steps or setting.steps)
    torch.set_num_threads(1)
    training = Training(setting, given.out, seed=given.seed)
    if given.begin_with:
        training.begin_with(given.begin_with)
    if given.resume or given.export:
        training.resume()
    if not given.export:
        training.run()
    export(training.average, training.vocabulary, given.out / "model")


if __name__ == "__main__":
    main()
