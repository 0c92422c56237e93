// Package text is wording that several commands share.
package text

import (
	"fmt"
	"strings"
)

// Plural is a number of things in words: "1 pod", "2 pods".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// LastLines are the last n lines of a text.
func LastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
