package actuator

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// snapshot is every control file of the tree below groups of kubelet, and how every thread is scheduled.
func (s *simTree) snapshot() map[string]string {
	out := map[string]string{}
	for _, c := range []string{"cpu", "cpuset"} {
		root := s.root(c)
		_ = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && slices.Contains(controlFiles, path.Base(file)) {
				out[strings.TrimPrefix(file, s.tree.Dir())] = slurp(file)
			}
			return nil
		})
	}
	for tid, th := range s.threads {
		out[fmt.Sprint("thread ", tid)] = fmt.Sprint(th.attr.Policy, " ", th.attr.Priority)
	}
	return out
}

var controlFiles = []string{rtRuntime, rtPeriod, rtMulti, rtMax, cfsQuota, cfsPeriod, cpuMax, cpusetCPUs, cpusetMems}

// differences of two snapshots.
func differences(a, b map[string]string) []string {
	var out []string
	for file, text := range a {
		if b[file] != text {
			out = append(out, fmt.Sprintf("%s: %q, now %q", file, text, b[file]))
		}
	}
	for file, text := range b {
		if _, ok := a[file]; !ok {
			out = append(out, fmt.Sprintf("%s: new, %q", file, text))
		}
	}
	slices.Sort(out)
	return out
}
