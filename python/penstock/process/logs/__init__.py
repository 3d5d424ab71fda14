"""What workers wrote: every byte with its place, from a moment on, of several workers in the order of time."""
