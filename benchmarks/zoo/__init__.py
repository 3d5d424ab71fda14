"""The state zoo: programs as people write them, each interrupted and resumed, and held against one that was not."""
