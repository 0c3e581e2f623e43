"""Pure comparison of two sides: records, settings, retention, groups."""
