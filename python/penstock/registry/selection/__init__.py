"""Selection: which of the files that a person names are taken, in which groups, and what is said about the others."""
