"""The corpus of damage: writes its cases to two clusters, and scores the answers of tools that compare these."""
