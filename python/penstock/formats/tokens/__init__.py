"""Token files: Megatron's, flat ones, and those that the registry keeps."""
