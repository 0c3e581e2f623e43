"""A real Kubernetes API server, without nodes, for tests: etcd, kube-apiserver, some of Kubernetes' controllers."""
