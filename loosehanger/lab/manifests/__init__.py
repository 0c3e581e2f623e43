"""Manifests: read from YAML, checked field by field, with errors that name file, line, resource and field."""
