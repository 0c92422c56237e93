// Package webhooks says what the API's own validation cannot: it gives pods that McKubes govern their
// claims and annotations, and refuses McKubes and pods that contradict themselves or each other.
//
// Decisions are pure functions (MutatePod, ValidatePod, ValidateMcKube, Entries) of objects and of what the state
// cache knows; handlers only decode and answer. Nothing is ever written from a request, so a dry run
// has no side effects. While the cache is incomplete real-time pods are asked to come again.
//
// Only pods with label sdv.com are sent here, and those that a McKube governs without it, for which
// Configurations keeps entries of their own: no other pod of a cluster ever waits for us.
package webhooks
