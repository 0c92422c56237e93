package influx_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/influx"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func TestLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		point influx.Point
		want  string
	}{
		"a migration": {influx.Point{Measurement: "pod_migration", Tags: map[string]string{"success": "true", "pod_name": "web-0"},
			Fields: map[string]any{"migration_count": int64(1)}, Time: at}, "pod_migration,pod_name=web-0,success=true migration_count=1i 1767323045000006000"},
		"escapes": {influx.Point{Measurement: "a b,c=d", Tags: map[string]string{"k e,y=": "v a,l=ue"},
			Fields: map[string]any{"f =,": `say "a\b"`}, Time: at}, `a\ b\,c=d,k\ e\,y\==v\ a\,l\=ue f\ \=\,="say \"a\\b\"" 1767323045000006000`},
		"empty tags are left out": {influx.Point{Measurement: "m", Tags: map[string]string{"a": "", "b": "\n"}, Fields: map[string]any{"f": true}, Time: at},
			`m,b=\  f=true 1767323045000006000`},
		"what would escape the next character": {influx.Point{Measurement: "m", Tags: map[string]string{"a": `v\\`}, Fields: map[string]any{"f": 0.5, "g": 1e21}, Time: at},
			`m,a=v f=0.5,g=1e+21 1767323045000006000`},
	} {
		if got, err := c.point.Line(); err != nil || got != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, c.want)
		}
	}
}

func TestPointsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	good := influx.Point{Measurement: "m", Fields: map[string]any{"f": int64(1)}, Time: at}
	for want, change := range map[string]func(*influx.Point){
		"no name":        func(p *influx.Point) { p.Measurement = `\` },
		"no field":       func(p *influx.Point) { p.Fields = nil },
		"no time":        func(p *influx.Point) { p.Time = time.Time{} },
		`field "f": NaN`: func(p *influx.Point) { p.Fields = map[string]any{"f": math.NaN()} },
		"int cannot":     func(p *influx.Point) { p.Fields = map[string]any{"f": 1} },
	} {
		p := good
		change(&p)
		if line, err := p.Line(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", want, line, err)
		}
	}
}

// Whatever a tag is, it ends neither its line nor itself early.
func TestLinesHoldTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		line, err := influx.Point{Measurement: "m", Tags: map[string]string{"tag": value, "z": "end"}, Fields: map[string]any{"f": int64(1)}, Time: at}.Line()
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(line, "\n\r\x00") || !strings.HasSuffix(line, ",z=end f=1i 1767323045000006000") {
			t.Fatalf("%q", line)
		}
		if parts := unescaped(line, ' '); len(parts) != 3 {
			t.Fatalf("%d parts in %q", len(parts), line)
		}
	})
}

// unescaped splits where no backslash stands before.
func unescaped(s string, by byte) (out []string) {
	from := 0
	for i := range len(s) {
		if s[i] == by && (i == 0 || s[i-1] != '\\') {
			out, from = append(out, s[from:i]), i+1
		}
	}
	return append(out, s[from:])
}
