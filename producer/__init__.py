"""The Loosehanger Jeans event producer: what a clothes shop would send to Kafka."""
