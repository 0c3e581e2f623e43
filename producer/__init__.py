"""The Loosehanger Jeans event producer, which writes a clothes shop's events to Kafka."""
