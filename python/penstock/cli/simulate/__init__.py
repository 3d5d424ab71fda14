"""``penstock simulate``: a job on hosts that nobody has, and what each choice would cost."""
