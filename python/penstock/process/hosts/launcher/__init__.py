"""The launcher of many hosts: what it keeps, what it shows, and who stands in for it."""
