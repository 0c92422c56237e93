// Package checkpoint is the agents' part of taking what is in a pod's memory to another node.
//
// A NodeCheckpoint names a pod, two nodes and a stage up to which the nodes' agents may go. The source's agent pauses the
// pod's containers, has the kubelet write their state, and leaves them paused: there are never two of them at work. The
// target's agent fetches the archives from the source's over TLS, on which each shows the certificate that the other one
// reads from the NodeCheckpoint, and has the runtime take them as images. The controller that made it makes the pod
// of them, and then says Release or Discard. Until it does, or the NodeCheckpoint expires, nothing is given up.
//
// Everything that is held is on record on disk before it is done, so that an agent which was killed at any point goes on
// or takes back. The API server's word decides which; while it is away, a paused container stays paused, as the pod may
// already be at work elsewhere.
//
// Keeper does this; it has what a node can do from a Driver.
package checkpoint
