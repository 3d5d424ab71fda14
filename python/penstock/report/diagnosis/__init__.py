"""Why training is slow: rules over the columns of steps and over the ledger, each a pure function."""
