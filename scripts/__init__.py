"""Tools for people who work on the kit."""
