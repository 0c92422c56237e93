// Package usage tells how much of the CPU and memory of nodes is in use, from the source that a cluster has: metrics.k8s.io,
// Prometheus, InfluxDB, or, where nothing is measured, what pods request.
//
// What is not known is not zero: a reading that is missing, too old or no number is unknown, and nothing follows from it.
package usage

import (
	"context"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// Names of the sources.
const (
	SourceMetricsAPI = "metrics.k8s.io"
	SourcePrometheus = "prometheus"
	SourceInflux     = "influxdb"
	SourceRequests   = "requests"
)

// Sources are their names, the default first.
var Sources = []string{SourceMetricsAPI, SourcePrometheus, SourceInflux, SourceRequests}

// Value is a reading.
type Value struct {
	// Ratio of what there is, 1 for all of it. More than 1 is possible: what is measured may exceed what is allocatable.
	Ratio float64
	// At is when it was measured; zero: it is unknown.
	At time.Time
}

// Known tells whether there is a reading.
func (v Value) Known() bool { return !v.At.IsZero() }

// Usage of a node.
type Usage struct{ CPU, Memory Value }

// Amount of CPU in cores, and of memory in bytes.
type Amount struct{ CPU, Memory float64 }

// Source is where readings come from.
type Source interface {
	// Name is one of Sources.
	Name() string
	// Nodes reads the usage of nodes by name. One that it does not know may be left out. Errors are of type *Error.
	Nodes(ctx context.Context, nodes []*corev1.Node) (map[string]Usage, error)
}

// PodSource is a source that knows pods, too.
type PodSource interface {
	// Pods reads what pods use.
	Pods(ctx context.Context) (map[types.NamespacedName]Amount, error)
}

// Limits of a look.
type Limits struct {
	// Timeout of the source's answer.
	Timeout time.Duration
	// MaxAge of a reading; what is older is unknown.
	MaxAge time.Duration
}

// Read asks a source, within the limits, as things are now. Of nodes that are not in the result nothing is known; what is
// in it but not known is unknown for its age or because it is no number.
func Read(ctx context.Context, s Source, nodes []*corev1.Node, now func() time.Time, limits Limits) (map[string]Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, limits.Timeout)
	defer cancel()
	found, err := s.Nodes(ctx, nodes)
	if err != nil {
		named := named(s.Name(), err)
		metrics.UsageReads.WithLabelValues(s.Name(), named.Kind).Inc()
		return nil, named
	}
	metrics.UsageReads.WithLabelValues(s.Name(), metrics.ResultOK).Inc()
	at := now()
	for name, u := range found {
		found[name] = u.Fresh(at, limits.MaxAge)
	}
	count(s.Name(), nodes, found)
	return found, nil
}

// Fresh is the usage without what is older than that.
func (u Usage) Fresh(now time.Time, maxAge time.Duration) Usage {
	return Usage{CPU: u.CPU.fresh(now, maxAge), Memory: u.Memory.fresh(now, maxAge)}
}

// Shares are what an amount is of a node, as the source counts: metrics.k8s.io of what is allocatable, the others of all
// there is. What the node does not have counts as all of it.
func Shares(source string, n *corev1.Node, a Amount) (cpu, memory float64) {
	has := n.Status.Capacity
	if source == SourceMetricsAPI {
		has = n.Status.Allocatable
	}
	return ratio(a.CPU, has.Cpu().AsApproximateFloat64()), ratio(a.Memory, has.Memory().AsApproximateFloat64())
}

func ratio(amount, all float64) float64 {
	switch {
	case amount <= 0:
		return 0
	case all <= 0:
		return 1
	}
	return amount / all
}

// fresh is the value, unknown if it is too old, from a clock that is as far ahead, or no number.
func (v Value) fresh(now time.Time, maxAge time.Duration) Value {
	age := now.Sub(v.At)
	if !v.Known() || age > maxAge || age < -maxAge || math.IsNaN(v.Ratio) || math.IsInf(v.Ratio, 0) || v.Ratio < 0 {
		return Value{}
	}
	return v
}

// count tells of how many nodes the usage is known.
func count(source string, nodes []*corev1.Node, found map[string]Usage) {
	known := 0
	for _, n := range nodes {
		if u := found[n.Name]; u.CPU.Known() && u.Memory.Known() {
			known++
		}
	}
	metrics.UsageNodes.WithLabelValues(source, metrics.StateKnown).Set(float64(known))
	metrics.UsageNodes.WithLabelValues(source, metrics.StateUnknown).Set(float64(len(nodes) - known))
}
