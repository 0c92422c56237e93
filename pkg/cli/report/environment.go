package report

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Environment is a table of the machine a report was made on.
func Environment(extra ...[]Cell) Table {
	rows := [][]Cell{
		Cells("machine", fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())),
		Cells("processor", firstField("/proc/cpuinfo", "model name")),
		Cells("memory", firstField("/proc/meminfo", "MemTotal")),
		Cells("Go", runtime.Version()),
	}
	return Table{Head: Columns("environment", ""), Rows: append(rows, extra...)}
}

// firstField is the first value of a key in a "key : value" file, "unknown" when it cannot be had.
func firstField(path, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
