"""Mirrors: what one copies, under which names and rights, and how mirrors form chains."""
