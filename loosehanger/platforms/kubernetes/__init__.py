"""The Kubernetes platform: applies the kit's manifests, and waits until the operators have reconciled them."""
