package main

import (
	"encoding/json"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// The standalone agent takes what it is told of every set, on each backend.
func TestTheAgentTakesTheFile(t *testing.T) {
	for _, k := range kinds {
		s, err := densest(k, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, backend := range []string{actuator.FIFO, actuator.RTGroup, actuator.Deadline, actuator.CFS} {
			if k.squeezes && backend != actuator.FIFO && backend != actuator.RTGroup {
				continue // T1 refuses it, and no run is made
			}
			for _, configuration := range []string{static, elastic, reserved} {
				e := execution{set: s, bench: bench{core: 1, periods: 1000, scale: 1, programs: rig.Programs{Task: "bench-task"}}, chargeUs: granularityUs, dir: t.TempDir()}
				data, err := json.Marshal(e.file(backend, configuration))
				if err != nil {
					t.Fatal(err)
				}
				f, err := standalone.Parse(data)
				if err != nil {
					t.Fatalf("%s %s %s: %v", backend, k.name, configuration, err)
				}
				if _, err := standalone.Admit(f, node(backend, granularityUs), "/group"); err != nil {
					t.Errorf("%s %s %s: %v", backend, k.name, configuration, err)
				}
			}
		}
	}
}
