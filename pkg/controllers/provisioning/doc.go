// Package provisioning opens nodes for real-time work beyond what Karpenter does for pending pods: the cheapest that
// passes the admission test, when an action asks for it (opennode.go); room kept free for pods of a stated shape
// (headroom.go); and no real-time pod on a node before its agent has said how exactly it enforces budgets
// (calibration.go).
package provisioning
