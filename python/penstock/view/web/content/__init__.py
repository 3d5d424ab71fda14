"""What pages show, made from files and registries; no HTTP."""
