package rtruntime

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// annotationsOf are the annotations that repeat what a pod's containers were given and where they are.
// An empty value means none. They are made for the whole pod at once, so that it does not matter which of
// its McKubes writes them.
func annotationsOf(s *state.Snapshot, pod *state.PodView) map[string]string {
	period, low, hi, current, core := values{}, values{}, values{}, values{}, values{}
	placed, configured := true, true
	for _, governed := range pod.Governed {
		if governed.Err != nil {
			placed, configured = false, false
			continue
		}
		p, settings := newPart(s, pod, governed), governed.McKube.Spec.RTSettings
		period[p.Container] = strconv.FormatInt(settings.Period, 10)
		low[p.Container] = strconv.FormatInt(settings.RuntimeLow, 10)
		hi[p.Container] = strconv.FormatInt(settings.RuntimeHi, 10)
		current[p.Container], core[p.Container] = p.level(), p.core()
		placed = placed && p.physical() != rt.NoCore
		configured = configured && p.configured()
	}
	out := map[string]string{
		mcv1.AnnotationPeriod: period.String(), mcv1.AnnotationRuntimeLow: low.String(), mcv1.AnnotationRuntimeHi: hi.String(),
		mcv1.AnnotationCurrent: current.String(), mcv1.AnnotationCore: core.String(),
		mcv1.AnnotationPending: "", mcv1.AnnotationConfigured: "",
	}
	if !placed {
		out[mcv1.AnnotationPending] = "true"
	}
	if configured {
		out[mcv1.AnnotationConfigured] = "true"
	}
	if len(pod.Governed) == 0 {
		out[mcv1.AnnotationConfigured], out[mcv1.AnnotationPending] = "", ""
		if _, labelled := pod.Labels[mcv1.LabelRT]; labelled {
			out[mcv1.AnnotationPending] = "true"
		}
	}
	return out
}

// values are those of one annotation by container.
type values map[string]string

func (v values) String() string {
	if len(v) == 0 {
		return ""
	}
	return mcv1.FormatValues(v)
}

// annotate writes them on the pods that the McKube governs. That a new pod is on its core waits for a moment for that its agent has read
// that back: both are one write then, as almost always.
func (c *mckubes) annotate(ctx context.Context, g *governance) (time.Duration, error) {
	var soonest time.Duration
	mckube, now, waiting := client.ObjectKeyFromObject(g.mckube), c.Clock.Now(), map[types.UID]bool{}
	for _, pod := range g.pods() {
		want := annotationsOf(g.snapshot, pod)
		if pod.Pending && want[mcv1.AnnotationPending] == "" && want[mcv1.AnnotationConfigured] == "" {
			waiting[pod.UID] = true
			if left := passing - c.placed.age(mckube, pod.UID, now); left > 0 {
				soonest = earliest(soonest, left)
				continue
			}
		}
		if _, err := c.annotatePod(ctx, pod, want); err != nil {
			return 0, err
		}
	}
	c.placed.keep(mckube, waiting)
	return soonest, nil
}

// annotatePod tells whether it changed anything.
func (d Dependencies) annotatePod(ctx context.Context, view *state.PodView, want map[string]string) (bool, error) {
	pod := &corev1.Pod{}
	err := d.Client.Get(ctx, view.Key(), pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != view.UID {
		return false, nil // the cache will say so
	}
	if err != nil {
		return false, fmt.Errorf("reading pod %s: %w", view.Key(), err)
	}
	annotated := pod.DeepCopy()
	if !setAnnotations(annotated, want) {
		return false, nil
	}
	if err := d.Client.Patch(ctx, annotated, ifUnchanged(pod)); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("annotating pod %s: %w", view.Key(), err)
	}
	return true, nil
}

// setAnnotations tells whether anything changed.
func setAnnotations(pod *corev1.Pod, want map[string]string) bool {
	changed := false
	for key, value := range want {
		have, has := pod.Annotations[key]
		switch {
		case value == "" && has && have != "":
			delete(pod.Annotations, key)
			changed = true
		case value != "" && have != value:
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			pod.Annotations[key] = value
			changed = true
		}
	}
	return changed
}

// level is the budget in force, as the agent read it back; low before that.
func (p part) level() string {
	if p.server == nil || p.server.Applied == nil || p.server.Applied.Level == "" {
		return v1alpha1.LevelLow
	}
	return p.server.Applied.Level
}

// physical is the core that it was assigned to.
func (p part) physical() int {
	if p.server == nil {
		return rt.NoCore
	}
	return p.server.Physical
}

// core is that core or, before there is one, the preferred ones.
func (p part) core() string {
	if id := p.physical(); id != rt.NoCore {
		return strconv.Itoa(id)
	}
	if preferred := p.McKube.Spec.RTSettings.Core; preferred != nil {
		return *preferred
	}
	return ""
}

// configured tells whether its agent is believed and has read back what the McKube asks for.
func (p part) configured() bool {
	return p.told() && p.node.Agent != state.AgentSilent && p.obeyed()
}

// told tells whether the node was told what the McKube asks for.
func (p part) told() bool {
	return p.server != nil && p.server.Spec != nil && p.server.McKube != nil && sameBudgets(*p.server.Spec, entryOf(p.server))
}

// obeyed tells whether the agent has read back what the node was told. Less than runtime_low is obedience, too, once
// the agent has seen the spec: it squeezes by the plan.
func (p part) obeyed() bool {
	if p.server == nil || p.server.Spec == nil || p.server.Applied == nil || p.node.RTNode == nil {
		return false
	}
	asked, applied := p.server.Spec, p.server.Applied
	if applied.Error != "" || applied.PeriodUs != asked.PeriodUs || !slices.Equal(applied.Cores, asked.Cores) {
		return false
	}
	seen := p.node.RTNode.Status.ObservedGeneration >= p.node.RTNode.Generation
	return applied.BudgetUs <= asked.BudgetHighUs && (applied.BudgetUs >= asked.BudgetLowUs || seen)
}
