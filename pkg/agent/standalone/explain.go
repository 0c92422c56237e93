package standalone

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What the decoder says of a file, in terms of Go.
var (
	unknownField = regexp.MustCompile(`^(line \d+): field (.*) not found in type standalone\.(\w+)$`)
	wrongKind    = regexp.MustCompile(`^(line \d+): cannot unmarshal !!(\w+) ?(.*) into (.*)$`)
)

// explained says what is wrong with a file in terms of the file.
func explained(err error) error {
	var faults *yaml.TypeError
	if !errors.As(err, &faults) {
		return fmt.Errorf("reading YAML: %w", err)
	}
	var out []error
	for _, text := range faults.Errors {
		out = append(out, errors.New(inTermsOfTheFile(text)))
	}
	return errors.Join(out...)
}

func inTermsOfTheFile(text string) string {
	if m := unknownField.FindStringSubmatch(text); m != nil {
		known := fields(reflect.TypeFor[Server]())
		if m[3] == reflect.TypeFor[File]().Name() {
			known = fields(reflect.TypeFor[File]())
		}
		return fmt.Sprintf("%s: field %q is not known; want one of %s", m[1], m[2], strings.Join(known, ", "))
	}
	if m := wrongKind.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%s: %s %s; want %s", m[1], kind(m[2]), strings.ReplaceAll(m[3], "`", `"`), wanted(m[4]))
	}
	return text
}

// fields are the names of a type's fields in a file.
func fields(of reflect.Type) []string {
	var out []string
	for i := range of.NumField() {
		out = append(out, of.Field(i).Tag.Get("yaml"))
	}
	return out
}

// kind is what YAML calls a type of its own.
func kind(tag string) string {
	switch tag {
	case "seq":
		return "a list"
	case "map":
		return "a mapping"
	}
	return "the value"
}

// wanted is what a type of ours is in a file.
func wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "int"):
		return "a whole number"
	case goType == "string":
		return "a text"
	}
	return "fields with values"
}
