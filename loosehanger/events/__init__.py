"""Reads and renders the shop's events, for consumers, consoles and commands."""
