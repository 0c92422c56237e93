package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PSI is the pressure stall information of a resource: how much work waited for it. Some is time in which
// at least one task waited, Full in which all did (0 for the CPU of the whole machine).
type PSI struct {
	Some Stall `json:"some"`
	Full Stall `json:"full"`
}

// Stall is the part of time in which work waited, in hundredths of a percent over the last 10, 60 and 300
// seconds, and in all, in microseconds.
type Stall struct {
	Avg10   int32  `json:"avg10"`
	Avg60   int32  `json:"avg60"`
	Avg300  int32  `json:"avg300"`
	TotalUs uint64 `json:"totalUs"`
}

// PSI reads the pressure on "cpu", "memory" or "io": of a group of the v2 hierarchy, or with an empty group
// of the machine. The error wraps ErrUnsupported where the kernel has no PSI, or boots with psi=0.
func (h Host) PSI(resource, group string) (PSI, error) {
	file := h.Proc("pressure", filepath.Base(resource))
	if group != "" {
		c, err := h.Cgroups()
		if err != nil {
			return PSI{}, err
		}
		dir, err := c.Dir(Unified, group)
		if err != nil {
			return PSI{}, err
		}
		file = filepath.Join(dir, filepath.Base(resource)+".pressure")
	}
	text, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) {
		return PSI{}, fmt.Errorf("reading pressure of %s: %w: %w", resource, ErrUnsupported, err)
	}
	if err != nil {
		return PSI{}, fmt.Errorf("reading pressure of %s: %w", resource, err)
	}
	return ParsePSI(text)
}

// ParsePSI reads "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" and the like with "full", which may be
// missing.
func ParsePSI(text string) (PSI, error) {
	var psi PSI
	some := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		stall, err := parseStall(rest)
		if err != nil {
			return PSI{}, fmt.Errorf("pressure %q: %w", line, err)
		}
		switch kind {
		case "some":
			psi.Some, some = stall, true
		case "full":
			psi.Full = stall
		}
	}
	if !some {
		return PSI{}, fmt.Errorf("pressure %q has no line of some", text)
	}
	return psi, nil
}

func parseStall(text string) (Stall, error) {
	var s Stall
	averages := map[string]*int32{"avg10": &s.Avg10, "avg60": &s.Avg60, "avg300": &s.Avg300}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		if into, ok := averages[key]; ok {
			percent, err := strconv.ParseFloat(value, 64)
			if err != nil || !(percent >= 0 && percent <= 100) {
				return Stall{}, fmt.Errorf("%s is %q; want a percentage", key, value)
			}
			*into = int32(math.Round(100 * percent))
		} else if key == "total" {
			total, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return Stall{}, fmt.Errorf("total is %q; want a number", value)
			}
			s.TotalUs = total
		}
	}
	return s, nil
}
