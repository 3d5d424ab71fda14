"""The command line: thin commands over the library. Only this floor reads the environment."""
