package metrics

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of a search for nodes to repack.
const (
	RepackFound    = "found"
	RepackNothing  = "nothing"
	RepackOutdated = "outdated"
)

var (
	// RepackSearches counts searches that ended.
	RepackSearches = counter("repack_searches_total", "Searches for nodes whose pods a cheaper set of machines could carry, by outcome: found, nothing, or outdated where the cluster had changed before the command began.", "outcome")
	// RepackSavings adds up what commands were to save when they began.
	RepackSavings = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "repack_planned_savings_dollars_per_hour_total",
		Help: "What commands of repacking were to save when they began, in USD per hour.",
	})
)
