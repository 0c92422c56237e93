package text_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/cli/text"
)

func TestPlural(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods"} {
		if got := text.Plural(n, "pod"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "a": "a", "a\nb\n": "a\nb", "a\nb\nc\n\n": "b\nc"} {
		if got := text.LastLines(in, 2); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
