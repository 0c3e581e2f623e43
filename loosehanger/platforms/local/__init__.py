"""The local platform: carries out the lab's Kubernetes manifests with processes of this machine."""
