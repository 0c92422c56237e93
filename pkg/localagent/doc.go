// Package localagent runs the node agent, its two programs, as processes beside a local node (package localnode): with the arguments and the
// ServiceAccount that the chart gives their containers, but for paths and addresses, which are the node's.
package localagent
