"""A batch of tokens as people look at it: windows, documents, vocabulary, lanes, samples."""
