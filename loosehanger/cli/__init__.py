"""The kit's commands."""
