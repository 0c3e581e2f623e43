"""The console consumer: what arrives in a region, a line for each record."""
