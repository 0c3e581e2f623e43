"""Clients of Kafka and of Connect's REST interface: one of each, for every part of the kit."""
