package demo

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
)

// Pods of the workload: web, batch, database, inference and robot-control.
const (
	allPods   = 24 + 20 + 3 + 2 + 4
	fewerWeb  = 10
	fewPods   = fewerWeb + 3 + 2 + 4
	crawlers  = 2
	savedGoal = 0.5 // of the general pool's price, in the consolidation chapter
)

// Story is the demo's chapters in order.
func Story() []Chapter {
	return []Chapter{scaleUp(), consolidation(), drift(), interruption(), repair(), expiry(), onCores(), onPreferredCore(), onNewNode(), climb()}
}

// StoryWithin is Story with limits of the chapters that grow with that of the whole.
func StoryWithin(limit time.Duration) []Chapter {
	story := Story()
	for i := range story {
		story[i].Limit = time.Duration(float64(story[i].Limit) * limit.Seconds() / Limit.Seconds())
	}
	return story
}

func scaleUp() Chapter {
	return Chapter{
		Title: "scale-up", Short: "scale-up",
		Doing: fmt.Sprintf("%d pods of five kinds arrive at once and the cluster has no node. Look for machines of four pools being opened, "+
			"each the cheapest that fits, and for pods that run seconds later.", allPods),
		Limit: 75 * time.Second,
		Act: func(ctx context.Context, c client.Client, _ observe.State, m *Memory) error {
			m.Want = allPods
			return apply(ctx, c, "workload.yaml")
		},
		Goal: func(v View, m Memory) (bool, string) {
			if !v.settled(m.Want) {
				return false, v.progress(m.Want)
			}
			return true, fmt.Sprintf("all %d pods run on %d new nodes of %d pools for $%.2f/h", v.Running, len(v.Nodes), len(v.Pools()), v.Price())
		},
	}
}

func consolidation() Chapter {
	return Chapter{
		Title: "scale-down with consolidation", Short: "consolidation",
		Doing: fmt.Sprintf("The batch work ends and web shrinks from 24 pods to %d. Look for general nodes that are closed because they are empty, or because "+
			"their pods fit elsewhere for less.", fewerWeb),
		Limit: 110 * time.Second,
		Act: func(ctx context.Context, c client.Client, before observe.State, m *Memory) error {
			m.Want = fewPods
			m.remember(before, general)
			if err := scale(ctx, c, "batch", 0); err != nil {
				return err
			}
			if err := scale(ctx, c, "web", fewerWeb); err != nil {
				return err
			}
			return patchPool(ctx, c, general, `{"spec":{"disruption":{"consolidateAfter":"3s"}}}`)
		},
		Goal: func(v View, m Memory) (bool, string) {
			empty, moved := len(v.left(m, "Empty")), len(v.left(m, "Underutilized"))
			price := observe.State{Nodes: v.Pool(general)}.Price()
			found := fmt.Sprintf("pool general went from %d nodes at $%.2f/h to %d at $%.2f/h: %d closed as empty, %d by moving their pods",
				m.Nodes, m.Price, len(v.Pool(general)), price, empty, moved)
			return v.settled(m.Want) && moved > 0 && price <= savedGoal*m.Price, found
		},
	}
}

func drift() Chapter {
	return Chapter{
		Title: "drift roll-out under a budget", Short: "drift",
		Doing: "The NodePool careful gets another label in its template, so its three database nodes have drifted. Its budget allows one node at a time. " +
			"Look for one replacement after the other, each ready before its old node leaves.",
		Limit: 110 * time.Second,
		Act: func(ctx context.Context, c client.Client, before observe.State, m *Memory) error {
			m.Want, m.Budget, m.BudgetPool = fewPods, 1, careful
			m.remember(before, careful)
			return patchPool(ctx, c, careful, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{%q:"v2"}}}}}`, releaseLabel))
		},
		Goal: func(v View, m Memory) (bool, string) {
			rolled := 0
			for _, n := range v.Pool(careful) {
				if n.Labels[releaseLabel] == "v2" && n.Phase == observe.Ready {
					rolled++
				}
			}
			peak := v.PeakDisrupted[careful]
			found := fmt.Sprintf("%d of %d nodes carry release v2; at most %d disrupted at once, budget %d", rolled, m.Nodes, peak, m.Budget)
			if peak > m.Budget {
				return false, found + ": the budget was exceeded"
			}
			return v.settled(m.Want) && rolled == m.Nodes && len(v.left(m, "Drifted")) == m.Nodes, found
		},
	}
}

func interruption() Chapter {
	return Chapter{
		Title: "spot interruption", Short: "spot",
		Doing: "The cloud takes a spot machine of pool general back, with 30 seconds' notice. Look for its pods on another machine before the notice ends.",
		Limit: 60 * time.Second,
		Act: func(ctx context.Context, c client.Client, before observe.State, m *Memory) error {
			m.Want = fewPods
			m.remember(before, general)
			return strike(ctx, c, "demo-interruption", fmt.Sprintf("{type: SpotInterruption, selector: {nodePools: [%s]}, count: 1, notice: 30s}", general))
		},
		Goal: func(v View, m Memory) (bool, string) {
			for _, machine := range v.left(m, "Interrupted") {
				took := machine.Gone.Sub(m.Begun)
				return v.settled(m.Want), fmt.Sprintf("%s (%s, %s) was drained and gone %.0f s after the notice; %s",
					machine.Claim, machine.Type, machine.Zone, took.Seconds(), v.progress(m.Want))
			}
			return false, "no spot machine has left yet; " + v.progress(m.Want)
		},
	}
}

func repair() Chapter {
	return Chapter{
		Title: "a dying node repaired", Short: "repair",
		Doing: "A kubelet of pool careful stops. Look for its node becoming not ready, for a replacement, and for its pod running again. " +
			"The dead node may stay up to a minute longer, until its old pod, whose end nobody confirms, is given up.",
		Limit: 125 * time.Second,
		Act: func(ctx context.Context, c client.Client, before observe.State, m *Memory) error {
			m.Want = fewPods
			m.remember(before, careful)
			return strike(ctx, c, "demo-failure", fmt.Sprintf("{type: NodeFailure, selector: {nodePools: [%s]}, count: 1}", careful))
		},
		Goal: func(v View, m Memory) (bool, string) {
			for _, machine := range v.left(m, "Unhealthy") {
				return v.settled(m.Want), fmt.Sprintf("the pod of %s ran elsewhere %.0f s after its kubelet stopped, and the dead node was gone after %.0f s; %s",
					machine.Claim, v.firstStart(careful, m.Begun).Seconds(), machine.Gone.Sub(m.Begun).Seconds(), v.progress(m.Want))
			}
			return false, fmt.Sprintf("%d nodes not ready; %s", v.InPhase(observe.NotReady), v.progress(m.Want))
		},
	}
}

// firstStart is how long after a moment the first pod was started on a pool's nodes; 0 when none was.
func (v View) firstStart(pool string, after time.Time) time.Duration {
	var first time.Duration
	for _, p := range v.Pods {
		node, ok := v.NodeOf(p.Node)
		if took := p.Started.Sub(after); ok && node.Pool == pool && took > 0 && (first == 0 || took < first) {
			first = took
		}
	}
	return first
}

func expiry() Chapter {
	return Chapter{
		Title: "expiry", Short: "expiry",
		Doing: "A fifth pool, short-lived, lets its machines live for 20 seconds. Look for its node being replaced when its time is over.",
		Limit: 70 * time.Second,
		Act: func(ctx context.Context, c client.Client, _ observe.State, m *Memory) error {
			m.Want = fewPods + crawlers
			return apply(ctx, c, "expiry.yaml")
		},
		Goal: func(v View, m Memory) (bool, string) {
			for _, machine := range v.Machines {
				if machine.Pool == shortLived && machine.Why == "Expired" && !machine.Gone.IsZero() {
					return v.Pending == 0 && v.Running == m.Want, fmt.Sprintf("%s expired and left after %.0f s of life; %s",
						machine.Claim, machine.Gone.Sub(machine.Created).Seconds(), v.progress(m.Want))
				}
			}
			return false, fmt.Sprintf("%d nodes in pool short-lived, none has expired and left yet", len(v.Pool(shortLived)))
		},
	}
}
