"""Manifests: reads them from YAML and checks each field, with errors that name file, line, resource and field."""
