// With this file the compiler accepts functions without a body in runtime.go.
