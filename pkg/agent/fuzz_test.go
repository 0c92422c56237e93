package agent_test

import (
	"strconv"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent"
)

// FuzzNearly: whatever somebody has written into the Node's annotation, it is left there only where it is a number within 5 of the utilisation.
func FuzzNearly(f *testing.F) {
	f.Add(uint8(50), "54")
	f.Add(uint8(50), "45")
	f.Add(uint8(100), "-9223372036854775808")
	f.Add(uint8(0), "9223372036854775808")
	f.Add(uint8(7), " 7")
	f.Fuzz(func(t *testing.T, percent uint8, there string) {
		used := int64(percent % 101)
		number, err := strconv.ParseInt(there, 10, 64)
		want := err == nil && number > used-5 && number < used+5
		if got := agent.Nearly(strconv.FormatInt(used, 10), there); got != want {
			t.Fatalf("%d beside %q: %t", used, there, got)
		}
	})
}
