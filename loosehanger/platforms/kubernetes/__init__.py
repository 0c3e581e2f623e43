"""The Kubernetes platform: puts the kit's manifests before an API server, and waits until its operators are done."""
