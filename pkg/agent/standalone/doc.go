// Package standalone governs processes of a machine without a cluster: a file says which servers there are,
// admission judges them as it does in a cluster, and the fast path does the rest.
package standalone
