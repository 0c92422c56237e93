// Package state is the cluster as real-time admission sees it: which container is a server, on which
// core its claim was allocated (the witness packing) and on which core it runs (the physical packing),
// what every core has left, and which pods wait.
//
// Everything except the reservations made here is a function of API objects, including the reservations of actions on
// record. Whatever the order of events, the snapshot is the one that Build makes from the existing objects. The package tells
// objects apart by UID, so that a pod or node that was re-created under the same name starts with nothing of its predecessor.
//
// A Snapshot is immutable and shares with the one before all that has not changed; reading one takes no
// lock. Questions about the whole cluster are answered from ordered indexes, in time that grows with
// the logarithm of the number of cores.
package state
