"""Models, optimizers and loose values as a tree of named tensors and documents."""
