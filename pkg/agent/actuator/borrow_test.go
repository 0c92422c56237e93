package actuator

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

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

// A caller that looks at the policies of its threads afterwards must not find the one that was lent.
func TestTheThreadThatWasLentIsGone(t *testing.T) {
	for range 200 {
		lent := 0
		if err := (linux{host: host.New("/")}).borrow(func(tid int, _ map[string]string) error {
			lent = tid
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Tgkill(os.Getpid(), lent, 0); !errors.Is(err, unix.ESRCH) {
			t.Fatalf("thread %d is still there: %v", lent, err)
		}
	}
}
