// Package printable keeps texts of others (answers of services, fields of objects, logs) from steering the terminals and logs that show them:
// control characters (C0, DEL and C1 of ECMA-48) and those that reorder text (Bidi_Control of Unicode's UAX #9).
package printable

import (
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// replace is what is shown in place of a character that may not be.
func replace(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
		return unicode.ReplacementChar
	}
	return r
}

// Line is the text in one line of valid UTF-8: line breaks and tabs become spaces, what else may not be shown U+FFFD.
func Line(text string) string {
	out := make([]rune, 0, len(text))
	for _, r := range text {
		if r == '\n' || r == '\t' || r == '\r' {
			r = ' '
		}
		out = append(out, replace(r))
	}
	return string(out)
}

// Writer passes text on to another writer, with line breaks and tabs, and with U+FFFD for what else may not be shown.
// It is safe for concurrent use where the other is.
type Writer struct {
	to io.Writer

	mu sync.Mutex
	// partial is the beginning of a character whose rest is still to come.
	partial []byte
}

// NewWriter writes to another writer.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Unwrap is the other writer.
func (w *Writer) Unwrap() io.Writer { return w.to }

// Write implements io.Writer. It keeps at most three bytes of a character for the next call.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.partial, p...)
	w.partial = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			w.partial = append([]byte(nil), text...)
			break
		}
		r, size := utf8.DecodeRune(text)
		if r != '\n' && r != '\t' {
			r = replace(r)
		}
		out, text = utf8.AppendRune(out, r), text[size:]
	}
	if _, err := w.to.Write(out); err != nil {
		return 0, fmt.Errorf("writing: %w", err)
	}
	return len(p), nil
}
