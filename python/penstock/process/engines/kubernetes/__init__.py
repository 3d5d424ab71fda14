"""Kubernetes as an engine: one Indexed Job, a headless service, a secret; asked through ``kubectl``, so every login that it knows works."""
