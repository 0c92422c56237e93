package checkpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// figures are the metrics of a side, of those names.
func (p *pair) figures(s *side, names ...string) string {
	p.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.keeper)
	families, err := registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, name := range names {
			if f.GetName() != "mainspring_checkpoint"+name {
				continue
			}
			for _, m := range f.GetMetric() {
				out = append(out, fmt.Sprint(m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount())))
			}
		}
	}
	return strings.Join(out, " ")
}

// What was taken, brought and restored is counted, and how long pods have stood still for it.
func TestCheckpointsAreCounted(t *testing.T) {
	p := newPair(t)
	p.source.config.Limits.Quota = 1 << 30
	p.start(p.source)
	p.settle()
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("stopped pods, quota, seconds (transfer, write), taken (done, failed)", p.figures(p.source, "_stopped_pods")+", "+p.figures(p.source, "_quota_bytes")+", "+p.figures(p.source, "_seconds")+", "+p.figures(p.source, "s_total"), "1, 1.073741824e+09, 0 1, 1 0")
	p.stage(v1alpha1.StageTransfer)
	p.target.node.restored = []containerd.Container{{Name: "app", ID: "id-new", RestoredFrom: "mainspring.local/checkpoint/0a-1b:app"}}
	p.settle()
	size := fmt.Sprint(float64(p.now().Status.Target.Bytes))
	expect("bytes written", p.figures(p.source, "_bytes_total"), "0 "+size)
	expect("held", p.figures(p.target, "_held_bytes"), size)
	expect("bytes received, restored, brought", p.figures(p.target, "_bytes_total")+", "+p.figures(p.target, "_restored_total")+", "+p.figures(p.target, "_transfers_total"), size+" 0, 1, 1 0")
	p.stage(v1alpha1.StageRelease)
	expect("stopped pods, held", p.figures(p.source, "_stopped_pods")+", "+p.figures(p.target, "_held_bytes"), "0, 0")

	p = newPair(t)
	p.source.node.can.Checkpoints = false
	p.settle()
	expect("failed", p.figures(p.source, "s_total"), "0 1")
}
