"""The kit: shared basics, Kafka clients, the model of a lab, its platforms and stages, proof, and commands."""
