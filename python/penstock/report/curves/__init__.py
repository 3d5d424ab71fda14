"""A run as curves, marks and maps: what screens draw beside the report, thinned to what a screen can show."""
