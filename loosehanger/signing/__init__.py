"""Tokens that sign people in, for the consoles and the command line."""
