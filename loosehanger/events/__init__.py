"""The shop's events as consumers, consoles and commands read and show them."""
