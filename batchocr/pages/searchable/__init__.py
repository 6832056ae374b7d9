"""PDFs that can be searched: made in a worker process of a document and of the words that were read on its pages."""
