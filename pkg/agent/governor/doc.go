// Package governor decides on one core which server is raised, which gives way, and when budgets are given back. It is
// pure: times come from the caller (nanoseconds of one monotonic clock), budgets leave through a Setter,
// and nothing between two Loads allocates memory.
//
// What is promised on the core is kept in an account (rt.CorePlan defines it): at every instant the rates of
// the periods under way add up to at most the plan's threshold, where a raised period counts from its
// release on and what is let go counts until the deadline of the period in which it was let go.
// docs/agent-decisions.md says what follows from that for a container.
package governor
