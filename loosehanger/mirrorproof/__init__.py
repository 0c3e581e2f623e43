"""``mirrorproof``: the proof of a mirror between any two Kafka clusters, as a command of its own."""
