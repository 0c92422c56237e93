package webhooks

// Yielding answers the same whatever the pod's McKubes.
func Yielding(yes bool) func([]binding) bool { return func([]binding) bool { return yes } }
