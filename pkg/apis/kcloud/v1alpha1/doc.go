// Package v1alpha1 holds the wire types of group kcloud.io, that of the KCloud Workload Optimizer: what users and
// other programs read and write through the API server. It imports neither controller-runtime nor Karpenter, so that
// a client needs nothing but this package and client-go.
//
// +kubebuilder:object:generate=true
// +groupName=kcloud.io
package v1alpha1
