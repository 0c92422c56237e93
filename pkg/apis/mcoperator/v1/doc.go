// Package v1 holds the wire types of group mcoperator.sdv.com: McKube, which gives containers of a
// pod real-time budgets. It imports neither controller-runtime nor Karpenter, so that a client needs
// nothing but this package and client-go.
//
// +kubebuilder:object:generate=true
// +groupName=mcoperator.sdv.com
package v1
