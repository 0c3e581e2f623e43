"""Clients of Kafka and of Connect's REST interface, shared by every part of the kit."""
