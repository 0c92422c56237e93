package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
)

// plant is the pool of the chapter about pressure.
const plant = "plant"

// plantStages are applied one after the other, so that the cores are filled as told; after each so many pods of the
// pool run.
var plantStages = []struct {
	file string
	pods int
}{{"plant.yaml", 5}, {"plant-full.yaml", 7}, {"plant-second.yaml", 10}}

// plantScript has control overrun, its highest budget too, while more than half of its core is promised.
const plantScript = "0s overrun-while-crowded 50"

func climb() Chapter {
	return Chapter{
		Title: "pressure climbs the ladder", Short: "ladder",
		Doing: "Pod control, of criticality High, overruns although its budget is the highest it may have: its core is 88 % promised. Look for one answer " +
			"after the other, each the cheapest that helps: large moves to another core, small to another machine, bare, which nobody makes again, is " +
			"evicted, and for peer, as critical as control, a machine is opened. Then the taint goes, and large comes back.",
		Limit: 80 * time.Second,
		Act: func(ctx context.Context, c client.Client, _ observe.State, _ *Memory) error {
			for _, stage := range plantStages {
				if err := applyRealtime(ctx, c, stage.file); err != nil {
					return err
				}
				if err := awaitRunning(ctx, c, stage.pods); err != nil {
					return fmt.Errorf("waiting for the pods of %s: %w", stage.file, err)
				}
			}
			return kube.Patch(ctx, c, kube.Object("v1", "Pod", namespace, "control"), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, hollow.AnnotationScript, plantScript))
		},
		Goal: func(v View, _ Memory) (bool, string) {
			control, core, _, ok := v.Server("control")
			second, _, _, there := v.Server("robot")
			if !ok || !there {
				return false, "the pods are not on their cores yet"
			}
			bare := v.governed("bare") == ""
			small, peer := v.governed("small"), v.governed("peer")
			found := fmt.Sprintf("control is on core %d of %s with %.0f %% promised; small on %s, peer on %s, bare %s; under pressure: %v",
				core.ID, control.Claim, 100*core.Promised, small, peer, map[bool]string{true: "evicted", false: "still there"}[bare], control.Pressure)
			return bare && small == second.Claim && peer != "" && peer != second.Claim && peer != control.Claim && !control.Pressure, found
		},
	}
}

// governed is the machine on which a pod of the workload has a core; empty when none has.
func (v View) governed(workload string) string {
	for _, n := range v.Nodes {
		for _, c := range n.Cores {
			for _, s := range c.Servers {
				if s.Pod == workload || strings.HasPrefix(s.Pod, workload+"-") {
					return n.Claim
				}
			}
		}
	}
	return ""
}

// awaitRunning waits until so many pods run on the pool's machines.
func awaitRunning(ctx context.Context, c client.Client, pods int) error {
	return wait.PollUntilContextCancel(ctx, templatesEvery, true, func(ctx context.Context) (bool, error) {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("v1")
		list.SetKind("PodList")
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return false, fmt.Errorf("listing pods: %w", err)
		}
		running := 0
		for i := range list.Items {
			pool, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "nodeSelector", "karpenter.sh/nodepool")
			phase, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "phase")
			if pool == plant && phase == "Running" {
				running++
			}
		}
		return running >= pods, nil
	})
}
