"""What is written down while a run goes on: journal, records of steps, metrics; and the account that is read out of them."""
