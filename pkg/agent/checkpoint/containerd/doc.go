// Package containerd asks containerd for what checkpoints need: to pause and resume containers, to take an archive as an
// image that a container can be restored from, and to tell what it restored. It speaks containerd's own interface and the
// CRI over one socket.
package containerd
