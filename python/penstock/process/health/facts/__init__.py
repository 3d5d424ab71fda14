"""What one host says of itself, and how fast it is: each look has a limit."""
