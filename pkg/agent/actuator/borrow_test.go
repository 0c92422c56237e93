package actuator

import (
	"os"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Go's first thread never ends, and would keep what was done to it: its group, its policy.
func TestTheFirstThreadIsNotBorrowed(t *testing.T) {
	for range 100 {
		err := linux{host: host.New("/")}.borrow(func(tid int, _ map[string]string) error {
			if tid == os.Getpid() {
				t.Error("the process's first thread was borrowed")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
