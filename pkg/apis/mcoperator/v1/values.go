package v1

import (
	"maps"
	"slices"
	"strings"
)

// FormatValues writes an annotation of a pod from its value for each governed container: the value
// itself for one container, else a comma list container=value in the order of the names.
func FormatValues(values map[string]string) string {
	names := slices.Sorted(maps.Keys(values))
	if len(names) == 1 {
		return values[names[0]]
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = name + "=" + values[name]
	}
	return strings.Join(parts, ",")
}

// ParseValues reads what FormatValues wrote for the given containers. A value may hold commas, as
// cpuset lists do. What the annotation does not give a container is empty.
func ParseValues(annotation string, containers ...string) map[string]string {
	if len(containers) == 1 && !strings.Contains(annotation, "=") {
		return map[string]string{containers[0]: annotation}
	}
	values := make(map[string]string, len(containers))
	name := ""
	for part := range strings.SplitSeq(annotation, ",") {
		if key, value, found := strings.Cut(part, "="); found {
			name, values[key] = key, value
		} else if name != "" {
			values[name] += "," + part
		}
	}
	return values
}

// UserNode is the node that the user bound m's pods to; empty for none. What the controller filled in
// is an observation.
func UserNode(m *McKube) string {
	if m.Spec.Node == m.Annotations[AnnotationFilledNode] {
		return ""
	}
	return m.Spec.Node
}
