"""The commands of ``./lab``."""
