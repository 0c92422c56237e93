// Package history keeps every version of the Nodes, NodeClaims, Pods and Events of a scenario, and
// of what real-time admission is made of (McKubes, ResourceClaims, ResourceSlices, RTNodes), in the
// order in which the API server wrote them. A promise about every moment ("never more than two
// nodes at once") is checked against this record and not against samples.
//
// All objects of a local control plane live in one etcd, so their resource versions are one
// sequence: sorting by it gives the order of the writes across kinds.
package history
