"""What a fault is made of: changes that can be undone, each by its name in the catalogue."""
