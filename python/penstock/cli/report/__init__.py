"""``penstock report``: why training is slow, and where its time went."""
