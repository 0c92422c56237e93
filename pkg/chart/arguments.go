package chart

import (
	"slices"
	"strings"
)

// Override returns the flags, of which each has the form --name or --name=value, with more in place of those of the same name.
func Override(flags []string, more ...string) []string {
	all := slices.Clone(flags)
	for _, flag := range more {
		name, _, _ := strings.Cut(flag, "=")
		all = append(Without(all, name), flag)
	}
	return all
}

// Without returns the flags but those of these names, each with its dashes.
func Without(flags []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return slices.Contains(names, name)
	})
}
