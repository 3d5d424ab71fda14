"""Commands of a job that ask all of its hosts; ``penstock.cli.job`` has their options."""
