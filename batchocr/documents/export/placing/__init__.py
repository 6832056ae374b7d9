"""Where the words of a page stand: lines from the rows of ink in a block, words from the gaps in a line."""
