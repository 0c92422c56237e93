package operator

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checked is a flag whose value is judged where it is set, so that a refusal names the flag or the environment variable
// that it came from, the value, and what would be right.
type checked[T any] struct {
	to    *T
	parse func(string) (T, error)
	// boolean flags need no value.
	boolean bool
}

// check makes a flag of a variable that has its default already.
func check[T any](to *T, otherwise T, parse func(string) (T, error)) *checked[T] {
	*to = otherwise
	return &checked[T]{to: to, parse: parse}
}

// String implements flag.Value.
func (c *checked[T]) String() string {
	if c.to == nil {
		return ""
	}
	return fmt.Sprint(*c.to)
}

// Set implements flag.Value.
func (c *checked[T]) Set(text string) error {
	value, err := c.parse(text)
	if err == nil {
		*c.to = value
	}
	return err
}

// IsBoolFlag lets --flag stand for --flag=true.
func (c *checked[T]) IsBoolFlag() bool { return c.boolean }

// trueOrFalse is a flag that is on or off.
func trueOrFalse(to *bool, otherwise bool) *checked[bool] {
	c := check(to, otherwise, func(text string) (bool, error) {
		switch strings.ToLower(text) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return false, errors.New("want true or false")
	})
	c.boolean = true
	return c
}

// oneOf a few words.
func oneOf[T ~string](words ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if !slices.Contains(words, T(text)) {
			return "", fmt.Errorf("want one of %v", words)
		}
		return T(text), nil
	}
}

// whole numbers in a range.
func whole(least, most int, of string) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("want %s from %d to %d", of, least, most)
		}
		return n, nil
	}
}

// seconds are a number, as the SDI Migration Service takes them, or a duration with a unit.
func seconds(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		value, err := time.ParseDuration(text)
		if n, notNumber := strconv.Atoi(text); notNumber == nil && n <= int(most/time.Second) {
			value, err = time.Duration(n)*time.Second, nil
		}
		if err != nil || value < least || value > most {
			return 0, fmt.Errorf("want seconds as a number, or a duration such as 30s, from %s to %s", least, most)
		}
		return value, nil
	}
}

// address of a service: http or https, without credentials.
func address(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("want a URL such as http://service.namespace.svc:8080, without credentials or query")
	}
	return strings.TrimSuffix(text, "/"), nil
}

// secret is text that no log or error shows, however the settings are printed: it is behind a function.
type secret func() string

func secretOf(text string) secret { return func() string { return text } }

// reveal the text; empty where there is none.
func (s secret) reveal() string {
	if s == nil {
		return ""
	}
	return s()
}
