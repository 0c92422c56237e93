package doctor_test

import (
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/doctor"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// The backend that the doctor reads off the machine is the one that the agent takes when it tries.
func TestTheAgentTakesTheBackendThatWasRead(t *testing.T) {
	privileged.Require(t, privileged.Root)
	privileged.Machine(t)
	h := host.New("/")
	report, err := doctor.Examine(doctor.Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	backend, findings, err := actuator.Probe(actuator.ProbeOptions{
		Host: h, StateDir: t.TempDir(), Cores: []int{0}, Now: func() int64 { return int64(time.Since(began)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if backend.Name() != report.Backend {
		t.Errorf("the doctor says %s, the agent takes %s: %v", report.Backend, backend.Name(), findings)
	}
}
