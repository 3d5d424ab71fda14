"""Many hosts as one job: their names, how they find each other, keys, host directories, and starting them by ssh."""
