"""The local platform: applies the lab's Kubernetes manifests as processes of this machine."""
