"""Ansible's plugins: the actions that describe resources and run stages, and the output on the terminal."""
