package driver

// What the tests need of the inside.
var (
	ParseRecord = parseRecord
	Stale       = stale
)
