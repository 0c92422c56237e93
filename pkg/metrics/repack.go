package metrics

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of a search for nodes to repack.
const (
	RepackFound    = "found"
	RepackNothing  = "nothing"
	RepackOutdated = "outdated"
	RepackTimeout  = "timeout"
)

var (
	// RepackSearches counts searches that ended.
	RepackSearches = counter("repack_searches_total", "Searches for nodes whose pods a cheaper set of machines could carry, by outcome: found (a command began), nothing, timeout (nothing within a minute), outdated (the cluster had changed before the command began).", "outcome")
	// RepackSavings adds up what commands were to save within a day when they began.
	RepackSavings = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "repack_planned_savings_dollars_total",
		Help: "What commands of repacking were to save within a day when they began, in USD. It is planned, not measured.",
	})
)
