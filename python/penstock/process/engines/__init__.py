"""Hosts rented from an engine: allocations, who rents them, and what runs on them first."""
