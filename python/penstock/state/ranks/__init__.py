"""The ranks of one start: who they are, what each holds, who writes what, and on which checkpoint they agree."""
