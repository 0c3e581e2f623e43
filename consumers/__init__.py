"""The console consumer: shows the records of a region, one line each."""
