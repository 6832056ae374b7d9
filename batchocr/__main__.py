"""`python -m batchocr`: the command, for when its script is not on the PATH."""

from batchocr.cli.main import main

if __name__ == "__main__":
    main()
