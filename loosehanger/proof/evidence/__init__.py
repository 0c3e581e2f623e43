"""What a proof found, before it is judged."""
