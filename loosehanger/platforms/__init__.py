"""What carries manifests out: processes of this machine, or Kubernetes and its operators."""
