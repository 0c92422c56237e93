package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxReported bounds how many faults of one file are told at once.
const maxReported = 5

// Faults are the first faults of a file, in the order of its lines, and how many there are in all.
type Faults struct {
	First []error
	Total int
}

// Error tells the first faults on one line.
func (f *Faults) Error() string {
	words := make([]string, 0, len(f.First))
	for _, e := range f.First {
		words = append(words, e.Error())
	}
	text := strings.Join(words, "; ")
	if more := f.Total - len(f.First); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Unwrap gives the single faults.
func (f *Faults) Unwrap() []error { return f.First }

func (f *Faults) add(err error) {
	f.Total++
	if len(f.First) < maxReported {
		f.First = append(f.First, err)
	}
}

// row is one line of a table with its header known; its getters collect faults instead of returning them, so that a
// reader of a row reads like a list of its fields.
type row struct {
	file    string
	line    int
	values  []string
	columns map[string]columnAt
	faults  *Faults
}

type columnAt struct {
	Column
	index int
}

// readTable calls each for every line after the header.
func readTable(r io.Reader, file string, fields []field, m Mapping, each func(row)) error {
	reader := csv.NewReader(r)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file is empty; want a header line with the columns %s", file, names(fields))
	}
	if err != nil {
		return fmt.Errorf("%s: reading header: %w", file, err)
	}
	columns, err := locate(file, header, fields, m)
	if err != nil {
		return err
	}
	faults := &Faults{}
	for {
		values, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			faults.add(lineError(file, len(header), err))
			break
		}
		line, _ := reader.FieldPos(0)
		each(row{file: file, line: line, values: values, columns: columns, faults: faults})
	}
	if faults.Total > 0 {
		return faults
	}
	return nil
}

func lineError(file string, columns int, err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) && errors.Is(parse.Err, csv.ErrFieldCount) {
		return fmt.Errorf("%s:%d: the line has another number of values than the header; want %d", file, parse.Line, columns)
	}
	if errors.As(err, &parse) {
		return fmt.Errorf("%s:%d: character %d: %w; want CSV as in RFC 4180", file, parse.Line, parse.Column, parse.Err)
	}
	return fmt.Errorf("%s: %w", file, err)
}

func locate(file string, header []string, fields []field, m Mapping) (map[string]columnAt, error) {
	header = slices.Clone(header)
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	found := map[string]columnAt{}
	for _, f := range fields {
		c := m.column(f)
		_, mapped := m[f.name]
		i := slices.Index(header, c.Name)
		switch {
		case i >= 0:
			found[f.name] = columnAt{Column: c, index: i}
		case f.required || mapped:
			return nil, fmt.Errorf("%s:1: column %q (field %s) is missing; the header has %s; name another with --map",
				file, c.Name, f.name, strings.Join(header, ", "))
		}
	}
	return found, nil
}

func (r row) has(name string) bool {
	_, ok := r.columns[name]
	return ok
}

func (r row) raw(name string) string {
	c, ok := r.columns[name]
	if !ok {
		return ""
	}
	return strings.TrimSpace(r.values[c.index])
}

func (r row) fault(name, want string) {
	r.faults.add(fmt.Errorf("%s:%d: column %q: %q; want %s", r.file, r.line, r.columns[name].Name, r.raw(name), want))
}

// text is a value that must not be empty.
func (r row) text(name string) string {
	v := r.raw(name)
	if v == "" {
		r.fault(name, "a name")
	}
	return v
}

// number is the raw value of a field that has a number; empty for none. pandas writes "nan" for none where it was made a text before.
func (r row) number(name string) string {
	v := r.raw(name)
	if strings.EqualFold(v, "nan") {
		return ""
	}
	return v
}

// whole is an integer in [low, high]; a field without a column or value gives unset. pandas writes the integers of a column that has a gap with a
// decimal point, "1.0".
func (r row) whole(name string, low, high, unset int64) int64 {
	v := r.number(name)
	if v == "" {
		return unset
	}
	n, err := parseWhole(v)
	if err != nil || n < low || n > high {
		r.fault(name, fmt.Sprintf("a whole number from %d to %d", low, high))
		return unset
	}
	return n
}

// parseWhole reads an integer, with a decimal point or without.
func parseWhole(v string) (int64, error) {
	if whole, fraction, found := strings.Cut(v, "."); found && fraction != "" && strings.Trim(fraction, "0") == "" {
		v = whole
	}
	return strconv.ParseInt(v, 10, 64)
}

// scale holds how much one of a unit is in the field's own unit.
var scale = map[string]float64{
	"milli": 1, "cores": 1000,
	"mib": 1, "gib": 1024, "bytes": 1.0 / (1 << 20),
}

// maxAmount bounds CPU (thousandths) and memory (MiB) so that sums stay far from overflow.
const maxAmount = 1 << 40

// amount is a number >= 0 in the field's own unit, rounded up.
func (r row) amount(name string) int64 {
	unit := r.columns[name].Unit
	v, err := strconv.ParseFloat(r.raw(name), 64)
	v *= scale[unit]
	if err != nil || math.IsNaN(v) || v < 0 || v > maxAmount {
		r.fault(name, "a number >= 0 in "+unit)
		return 0
	}
	return int64(math.Ceil(v))
}

var second = map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond}

// maxTime bounds times to 100 years, so that sums cannot overflow.
const maxTime = 100 * 365 * 24 * time.Hour

// moment is an offset >= 0 from the start of the trace. It says whether there is one.
func (r row) moment(name string) (time.Duration, bool) {
	v := r.number(name)
	if v == "" {
		return 0, false
	}
	unit := r.columns[name].Unit
	n, err := strconv.ParseFloat(v, 64)
	n *= float64(second[unit])
	if err != nil || math.IsNaN(n) || n < 0 || n > float64(maxTime) {
		r.fault(name, "a time >= 0 in "+unit+" from the start of the trace")
		return 0, false
	}
	return time.Duration(n), true
}
