package agent

import (
	"context"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

var (
	nodeLabels      = []string{v1alpha1.LabelRTBackend}
	nodeAnnotations = []string{mcv1.AnnotationCPUUsage, mcv1.AnnotationCPUOver90, mcv1.AnnotationCPUBusy, v1alpha1.AnnotationRTGuarantee}
)

const (
	// nodeEvery is the least time between two patches of the Node.
	nodeEvery = 2 * time.Second
	// percentStep is the least change of the CPU utilisation that is worth a patch by itself.
	percentStep = 5
	// percentEvery is how old a utilisation may become that has changed by less.
	percentEvery = 30 * time.Second
)

// noter keeps the annotations and labels of the Node: how busy it is, as MC-Kube's own programs said it, and what
// enforces budgets.
type noter struct {
	api      API
	node     string
	world    func() *World
	counted  func() *Counted
	pressure func() pressure.State
	clock    clock.WithTicker
	log      logr.Logger

	writtenAt, percentAt time.Time
	failed               bool
}

// Name implements Service.
func (n *noter) Name() string { return "node" }

// Run patches until ctx ends.
func (n *noter) Run(ctx context.Context) error {
	every(ctx, n.clock, nodeEvery, n.note)
	return nil
}

func (n *noter) note(ctx context.Context) {
	world := n.world()
	if world == nil || world.NodeUID == "" {
		return
	}
	labels, annotations := wantedLabels(n.counted()), wantedAnnotations(n.counted(), n.pressure())
	now := n.clock.Now()
	if now.Sub(n.percentAt) < percentEvery && nearly(annotations[mcv1.AnnotationCPUUsage], world.Annotations[mcv1.AnnotationCPUUsage]) {
		delete(annotations, mcv1.AnnotationCPUUsage)
	}
	prune(labels, world.Labels)
	prune(annotations, world.Annotations)
	if len(labels)+len(annotations) == 0 || now.Sub(n.writtenAt) < nodeEvery {
		return
	}
	n.writtenAt = now
	if err := n.api.PatchNode(ctx, n.node, labels, annotations); err != nil {
		if !n.failed && ctx.Err() == nil {
			n.log.Error(err, "annotating the node; trying on")
		}
		n.failed = true
		return
	}
	n.failed = false
	if _, told := annotations[mcv1.AnnotationCPUUsage]; told {
		n.percentAt = now
	}
}

// prune drops what is there already.
func prune(wanted, there map[string]string) {
	maps.DeleteFunc(wanted, func(key, value string) bool { return there[key] == value })
}

func wantedLabels(c *Counted) map[string]string {
	out := map[string]string{}
	if c != nil && c.Report.Backend != "" && len(validation.IsValidLabelValue(c.Report.Backend)) == 0 {
		out[v1alpha1.LabelRTBackend] = c.Report.Backend
	}
	return out
}

// wantedAnnotations say nothing of a pressure that was not measured: what an earlier agent wrote is better than
// "not busy".
func wantedAnnotations(c *Counted, p pressure.State) map[string]string {
	out := map[string]string{}
	if p.Known {
		out[mcv1.AnnotationCPUUsage] = strconv.Itoa(int(p.Percent))
		out[mcv1.AnnotationCPUOver90] = strconv.FormatInt(int64(p.Over/time.Second), 10)
		out[mcv1.AnnotationCPUBusy] = strconv.FormatBool(p.Busy)
	}
	if c != nil && c.Report.Guarantee != "" {
		out[v1alpha1.AnnotationRTGuarantee] = strings.TrimSpace(c.Report.Guarantee)
	}
	return out
}

// nearly says that two percentages differ by too little to be told at once.
func nearly(a, b string) bool {
	one, err := strconv.Atoi(a)
	if err != nil {
		return false
	}
	other, err := strconv.Atoi(b)
	return err == nil && math.Abs(float64(one-other)) < percentStep
}
