package environment

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// trouble are marks of defects that a controller may survive.
var trouble = []string{"WARNING: DATA RACE", "panic: ", "Observed a panic", "fatal error: "}

// logSize is the position in the program's log up to which it has been written.
func (p *Program) logSize() int64 {
	info, err := os.Stat(p.logPath)
	if err != nil {
		return 0
	}
	return info.Size()
}

// logSince returns what the program has logged after the position.
func (p *Program) logSince(offset int64) string {
	f, err := os.Open(p.logPath)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// troubleSince returns the log around the first mark of a defect after the position, or "".
func (p *Program) troubleSince(offset int64) string {
	log := p.logSince(offset)
	for _, mark := range trouble {
		if i := strings.Index(log, mark); i >= 0 {
			return log[i:min(len(log), i+4000)]
		}
	}
	return ""
}

// errorsSince returns the last lines of level ERROR after the position.
func (p *Program) errorsSince(offset int64, lines int) []string {
	var all []string
	for line := range strings.Lines(p.logSince(offset)) {
		if strings.Contains(line, `"level":"ERROR"`) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all[max(0, len(all)-lines):]
}

// tail returns the last lines of the log.
func (p *Program) tail(lines int) string {
	data := bytes.TrimSpace([]byte(p.logSince(max(0, p.logSize()-64<<10))))
	all := bytes.Split(data, []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
