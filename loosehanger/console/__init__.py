"""The web consoles: one for each region, and a control room for all of them."""
