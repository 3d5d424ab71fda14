"""Memory of devices and of the host: copies beside training, pinned arenas, timers, guards of optimizers."""
