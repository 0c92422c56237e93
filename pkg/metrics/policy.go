package metrics

// Values of label engine of mainspring_policy_decisions_total: whose engine was asked.
const (
	// EngineNone: the rules decided alone.
	EngineNone = "none"
	// EnginePolicy is that of the MigrationPolicy, EngineDefault that of the controller.
	EnginePolicy  = "policy"
	EngineDefault = "default"
)

// Values of label outcome.
const (
	PolicyAllow = "allow"
	PolicyDeny  = "deny"
	// PolicyErrorOpen is no answer of the engine that counts as yes, PolicyErrorClosed one that counts as no.
	PolicyErrorOpen   = "error_open"
	PolicyErrorClosed = "error_closed"
	// PolicyTimeout is no answer in time, whatever counts.
	PolicyTimeout = "timeout"
	// PolicyCached is an answer of seconds ago, whatever it was.
	PolicyCached = "cached"
)

// PolicyDecisions counts whether pods may be migrated.
var PolicyDecisions = counter("policy_decisions_total", "Decisions whether a pod may be migrated, by whose policy engine was asked (none: rules alone) and what it said.", "engine", "outcome")

// zeroPolicy makes the series exist.
func zeroPolicy() {
	for _, outcome := range []string{PolicyAllow, PolicyDeny} {
		PolicyDecisions.WithLabelValues(EngineNone, outcome)
	}
	for _, engine := range []string{EnginePolicy, EngineDefault} {
		for _, outcome := range []string{PolicyAllow, PolicyDeny, PolicyErrorOpen, PolicyErrorClosed, PolicyTimeout, PolicyCached} {
			PolicyDecisions.WithLabelValues(engine, outcome)
		}
	}
}
