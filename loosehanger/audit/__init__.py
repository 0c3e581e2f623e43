"""The audit: a stream that keeps the balance of every mirror while records flow."""
