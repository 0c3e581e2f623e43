"""What Ansible loads: the action that describes, what the platforms' actions share, and the output on the terminal."""
