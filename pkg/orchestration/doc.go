// Package orchestration is the queue through which controllers act on pods and nodes: they submit actions and are
// told what became of them. Which action may run, and when, is decided in package rules; this package keeps the actions on API
// objects (RTActions), runs them, and tells users what each waits for.
//
// Two loops share one ledger. The dispatcher (dispatch.go) decides which actions start and ends those that are late;
// the runner (run.go) has executors do, or undo, one step of an action at a time.
//
// What keeps promises across crashes, a second leader and requests that are lost:
//
//   - The ledger is what the API server has confirmed, never what a watch has shown. Every change is an update of
//     the version that it was decided on, and takes effect in memory once it is stored.
//   - An update whose outcome is unknown may still arrive later. Its action is read again and written, so that
//     the late one is refused, before anything is decided (settle.go).
//   - A start depends on all actions, not on one. A process that takes over first takes a Lease (gate.go), then reads all
//     actions and writes each. A start is decided on versions that were read before the Lease was last seen to be held, so
//     of two leaders, what the earlier one starts is either seen by the later one or refused.
//   - Steps of executors may be repeated. That is all that is asked of them: the record of a step is written after it.
package orchestration
