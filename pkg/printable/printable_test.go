package printable_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mainspring-rt/mainspring/pkg/printable"
)

var hostile = map[string]string{
	"plain, é, 日本 and 🚗":       "plain, é, 日本 and 🚗",
	"\x1b[2J\x1b]0;root\x07":   "\ufffd[2J\ufffd]0;root\ufffd",
	"a\rb\bc\x7f":              "a b\ufffdc\ufffd",
	"C1 \u009b2J":              "C1 \ufffd2J",
	"\u202egnp.exe\u2066":      "\ufffdgnp.exe\ufffd",
	"line\nof another\tcolumn": "line of another column",
	"not \xff UTF-8 \xe6\x97":  "not \ufffd UTF-8 \ufffd\ufffd",
	"":                         "",
}

func TestALineSteersNoTerminal(t *testing.T) {
	t.Parallel()
	for text, want := range hostile {
		if got := printable.Line(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// However a text is cut into writes, the same arrives, but for the lines and tabs that it keeps.
func TestAWriterSteersNoTerminal(t *testing.T) {
	t.Parallel()
	for text, want := range hostile {
		if strings.ContainsAny(text, "\n\t\r") || !utf8.ValidString(text) {
			continue
		}
		for size := 1; size <= len(text); size++ {
			got := &strings.Builder{}
			w := printable.NewWriter(got)
			for from := 0; from < len(text); from += size {
				part := text[from:min(from+size, len(text))]
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("%q: %d, %v", part, n, err)
				}
			}
			if got.String() != want {
				t.Errorf("%q by %d bytes becomes %q, want %q", text, size, got, want)
			}
		}
	}
	got := &strings.Builder{}
	if _, err := printable.NewWriter(got).Write([]byte("a\tb\nc\r\n\xff")); err != nil || got.String() != "a\tb\nc\ufffd\n\ufffd" {
		t.Errorf("%q, %v", got, err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestAWriterPassesErrorsOn(t *testing.T) {
	t.Parallel()
	if n, err := printable.NewWriter(full{}).Write([]byte("a")); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
}
