// Package test builds the objects of end-to-end scenarios with small, sane defaults. Each builder
// takes functions that change the object, so that a scenario states only what it is about.
package test

// Namespace is where workloads are put.
const Namespace = "default"

// Label marks the pods of one workload: its value is the workload's name.
const Label = "app"

// build applies the changes to the object and returns it.
func build[T any](object T, changes []func(T)) T {
	for _, change := range changes {
		change(object)
	}
	return object
}
