"""The platforms that apply manifests: processes of this machine, or Kubernetes and its operators."""
