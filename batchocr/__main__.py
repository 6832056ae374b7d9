"""`python -m batchocr`: the command, for when its script is not on the PATH."""

from batchocr.cli.start import main

if __name__ == "__main__":
    main()
