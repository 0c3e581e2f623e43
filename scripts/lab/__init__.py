"""What the wrappers, the clients and the Spark jobs share: where the lab is, and how to reach its clusters."""
