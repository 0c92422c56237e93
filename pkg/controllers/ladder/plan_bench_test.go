package ladder_test

import (
	"fmt"
	"testing"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// BenchmarkChoose makes the choice for one of 100 nodes of 4 cores with 2,000 pods. No core of the node has room, so the planner
// looks at every neighbour with every possible target.
func BenchmarkChoose(b *testing.B) {
	w := newCluster()
	for i := range 100 {
		node := fmt.Sprintf("n%03d", i)
		w.node(node, 4)
		for j := range 20 {
			w.run(fmt.Sprintf("%s-%02d", node, j), node, []mcv1.Criticality{"High", "Middle", "Low", "Low", "Low"}[j%5], 16, 16, j/5)
		}
	}
	p := w.planner("n000", ladder.SourceOverruns, "n000-00")
	w.cores["n099"] = 5
	roomy := w.planner("n000", ladder.SourceOverruns, "n000-00")
	for name, p := range map[string]ladder.Planner{"nowhere": p, "one core free": roomy} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p.Choose()
			}
		})
	}
}
