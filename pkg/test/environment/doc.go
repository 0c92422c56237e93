// Package environment runs end-to-end scenarios: one real control plane per Ginkgo process, the
// controller as a process of its own against it, a record of everything the API server writes, and
// the vocabulary in which scenarios state what they expect.
//
// A suite prepares once (Prepare, in the first process), starts an Environment in each process
// (Start), and wraps every spec in BeforeEach and AfterEach: a spec begins on a clean cluster, and
// ends only when the cluster holds to what must always be true of it.
package environment
