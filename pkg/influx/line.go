package influx

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Point is one line of the line protocol.
type Point struct {
	Measurement string
	// Tags with an empty value are left out: InfluxDB has none.
	Tags map[string]string
	// Fields are int64, float64, bool or string. There must be one.
	Fields map[string]any
	// Time that the point is of. Another one with the same time, measurement and tags takes its place.
	Time time.Time
}

// Errors of points that cannot be written.
var (
	errNoMeasurement = errors.New("the measurement has no name")
	errNoField       = errors.New("the point has no field")
	errNoTime        = errors.New("the point has no time")
)

// Line is the point as a line, without the end of line, its time in nanoseconds. Keys are in their order, so equal points
// are equal lines.
func (p Point) Line() (string, error) {
	switch {
	case clean(p.Measurement) == "":
		return "", errNoMeasurement
	case len(p.Fields) == 0:
		return "", errNoField
	case p.Time.IsZero():
		return "", errNoTime
	}
	var line strings.Builder
	line.WriteString(measurementEscapes.Replace(clean(p.Measurement)))
	for _, key := range slices.Sorted(maps.Keys(p.Tags)) {
		value := clean(p.Tags[key])
		if value == "" || clean(key) == "" {
			continue
		}
		line.WriteString("," + keyEscapes.Replace(clean(key)) + "=" + keyEscapes.Replace(value))
	}
	separator := " "
	for _, key := range slices.Sorted(maps.Keys(p.Fields)) {
		value, err := field(p.Fields[key])
		if err != nil {
			return "", fmt.Errorf("field %q: %w", key, err)
		}
		line.WriteString(separator + keyEscapes.Replace(clean(key)) + "=" + value)
		separator = ","
	}
	line.WriteString(" " + strconv.FormatInt(p.Time.UnixNano(), 10))
	return line.String(), nil
}

var (
	measurementEscapes = strings.NewReplacer(",", `\,`, " ", `\ `)
	keyEscapes         = strings.NewReplacer(",", `\,`, "=", `\=`, " ", `\ `)
	stringEscapes      = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
)

// clean takes away what no escape can write: control characters become spaces, and a backslash at the end, which would
// escape what comes after it, goes.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.TrimRight(s, `\`)
}

func field(value any) (string, error) {
	switch v := value.(type) {
	case int64:
		return strconv.FormatInt(v, 10) + "i", nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "", fmt.Errorf("%v cannot be stored; want a finite number", v)
		}
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case bool:
		return strconv.FormatBool(v), nil
	case string:
		return `"` + stringEscapes.Replace(v) + `"`, nil
	}
	return "", fmt.Errorf("%T cannot be stored; want int64, float64, bool or string", value)
}
