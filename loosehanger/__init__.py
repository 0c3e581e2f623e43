"""What all parts of the kit share: errors and waiting, clients, the model of a lab, its platforms, and the commands."""
