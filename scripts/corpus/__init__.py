"""The corpus of damage: its cases written to two clusters, and the answers of those who compare them scored."""
