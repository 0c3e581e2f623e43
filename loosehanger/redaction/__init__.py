"""Copies of a topic without the fields and headers that must not leave a region."""
