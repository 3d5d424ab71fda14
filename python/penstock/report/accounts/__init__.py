"""The ledger: where the time of every rank went, life by life, in whole nanoseconds."""
