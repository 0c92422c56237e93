package influx

// Parse is parse, to be fuzzed.
var Parse = parse
