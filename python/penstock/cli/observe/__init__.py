"""Commands about what a machine or a model can do, before anything runs."""
