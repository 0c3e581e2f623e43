"""Experiments: measurements on the lab that is set up, which show the benefit of mirrors. See ``./lab experiment``."""
