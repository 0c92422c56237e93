// Package policy decides whether a pod may be migrated: which MigrationPolicy holds for it (the most specific, then by
// name), whether its windows are open, what its rules in CEL say, and last what its policy engine says. Rules are compiled
// against the types of what they see, so that most mistakes are found when a policy is written. An expression that cannot
// be evaluated denies.
//
// How many pods may be on the move at once is counted by UsageOf and judged by Limited: over a limit a migration waits, it is not denied.
//
// All but Judge is pure.
package policy
