"""Mirrors: their topics, names and rights, and the chains that they form."""
