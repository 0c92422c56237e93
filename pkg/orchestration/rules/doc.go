// Package rules decides which actions on pods and nodes may run, in which order, and what becomes of each.
// Everything here is pure: values in, values out; no clock, client, context or logger.
//
// An action uses resources: pods and nodes that no other action may touch meanwhile, and places under limits and
// disruption budgets. Decide goes through the waiting actions in their order and starts each for which
// everything it uses is free. Two kinds of want are told apart:
//
//   - What the world withholds (a PodDisruptionBudget without allowance, a NodePool's budget of zero, a veto)
//     may last for ever. An action that waits for it keeps no pods, nodes or limits from others. Budgets, which evictions of
//     others use up a little at a time, it does keep from actions that come after it in the order, if each may come
//     to allow what it needs: for its first step of age, and in turns from then on, so that those behind an action
//     that waits in vain wait no longer than for their turn (keep.go).
//   - What other actions use is given back, for every action that runs has a deadline. An action that waits for it
//     reserves all that it uses against actions that come after it in the order, or a stream of small ones
//     could starve it.
//
// Age raises an action in the order, by one class of criticality for every Options.AgeStep, without end. So
// an action for which the world withholds nothing runs in bounded time: at the latest AgeStep times the
// distance between the classes after its submission it is before everything that is submitted later, what was
// before it is finite, and what runs ends. So does one that needs no more of budgets than they come to allow, when
// evicted pods are replaced and well again within a step of age and no other client uses them up: behind k actions that wait for them in vain it
// takes up to 2^(k+1) steps more.
//
// Every phase is written to an API object before what it permits is done, so the next controller may find
// an action in any of them and goes on. What the transitions promise is checked over all interleavings of small
// systems of three actions, with the process killed at any point (model_test.go). Of larger ones random histories
// show that no more is used than there is and that no action starves (history_test.go, budget_test.go).
package rules
