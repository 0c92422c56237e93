package doctor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/doctor"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

// FuzzMachine: whatever one of the machine's files holds, the report comes, whole and readable. It has every parser of a kernel's, the kubelet's
// and the runtime's files behind it.
func FuzzMachine(f *testing.F) {
	var files []string
	tree := hosttest.Lab(f)
	tree.KubeletConfig("cpuManagerPolicy: none\nreservedSystemCPUs: 0")
	tree.Write("var/lib/kubelet/cpu_manager_state", `{"policyName":"none","defaultCpuSet":""}`)
	err := filepath.WalkDir(tree.Dir(), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, strings.TrimPrefix(path, tree.Dir()+"/"))
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	for i, file := range files {
		text := tree.Read(file)
		f.Add(uint16(i), []byte(text))
		f.Add(uint16(i), []byte(text[:len(text)/2]))
		f.Add(uint16(i), []byte("\x00-9223372036854775808,99999999999-0 = : / \n\n"))
	}
	f.Fuzz(func(t *testing.T, which uint16, data []byte) {
		file := files[int(which)%len(files)]
		path := filepath.Join(tree.Dir(), file)
		held, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.WriteFile(path, held, 0o600) }()
		report, err := doctor.Examine(doctor.Options{Host: tree.Host(), Programs: loads})
		if err != nil {
			if !errors.Is(err, doctor.ErrOptions) {
				t.Fatalf("%s: %v", file, err)
			}
			return
		}
		var text, wire bytes.Buffer
		if err := errors.Join(report.Text(&text), report.JSON(&wire)); err != nil || !json.Valid(wire.Bytes()) {
			t.Fatalf("%s: %v, %s", file, err, wire.Bytes())
		}
		if len(report.Findings) != len(doctor.Names()) {
			t.Fatalf("%s: %d findings; want %d", file, len(report.Findings), len(doctor.Names()))
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, data) {
			t.Fatalf("%s was changed: %v", file, err)
		}
	})
}
