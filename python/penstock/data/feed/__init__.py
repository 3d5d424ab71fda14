"""The feed: batches of one lane, in order, read ahead, shared by processes of a host, resumable from a cursor."""
