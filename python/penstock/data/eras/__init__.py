"""Eras: large text is measured, planned and read in portions, so that the first batch does not wait for the last row."""
