"""How much of a table a second reader does not confirm: `batchocr audit`."""
