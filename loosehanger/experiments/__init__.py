"""Experiments: measurements on the lab that is set up, which say why one mirrors. ``./lab experiment`` runs them."""
