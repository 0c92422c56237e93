package checkpoint

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Results in the metrics.
const (
	resultDone   = "done"
	resultFailed = "failed"
)

// figures are what an agent counts of checkpoints since it began.
type figures struct {
	taken, brought *prometheus.CounterVec
	bytes          *prometheus.CounterVec
	restored       prometheus.Counter
	seconds        *prometheus.HistogramVec
}

func newFigures() figures {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "mainspring", Name: name, Help: help}, []string{label})
	}
	f := figures{
		taken:   counter("checkpoints_total", "Pods of this node whose state was to be written, by what came of it.", "result"),
		brought: counter("checkpoint_transfers_total", "States of pods that were to be brought to this node, by what came of it.", "result"),
		bytes:   counter("checkpoint_bytes_total", "Bytes of archives that were written here, and received from others.", "direction"),
		restored: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "mainspring", Name: "checkpoint_restored_total", Help: "Containers that the runtime has made of states.",
		}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "mainspring", Name: "checkpoint_seconds", Help: "Time from the pause until all states of a pod were written, and for bringing them here.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"step"}),
	}
	for _, result := range []string{resultDone, resultFailed} {
		f.taken.WithLabelValues(result)
		f.brought.WithLabelValues(result)
	}
	for _, step := range []string{"write", "transfer"} {
		f.seconds.WithLabelValues(step)
	}
	for _, direction := range []string{"written", "received"} {
		f.bytes.WithLabelValues(direction)
	}
	return f
}

func (f figures) all() []prometheus.Collector {
	return []prometheus.Collector{f.taken, f.brought, f.bytes, f.restored, f.seconds}
}

var (
	descStopped = prometheus.NewDesc("mainspring_checkpoint_stopped_pods", "Pods of this node that stand still for a migration.", nil, nil)
	descHeld    = prometheus.NewDesc("mainspring_checkpoint_held_bytes", "Bytes of archives that this node holds.", nil, nil)
	descQuota   = prometheus.NewDesc("mainspring_checkpoint_quota_bytes", "Bytes of archives that this node may hold; 0: no bound.", nil, nil)
)

// Descriptions of the metrics of a keeper.
func Descriptions() []*prometheus.Desc {
	found := make(chan *prometheus.Desc, 16)
	for _, c := range newFigures().all() {
		c.Describe(found)
	}
	close(found)
	list := []*prometheus.Desc{descStopped, descHeld, descQuota}
	for d := range found {
		list = append(list, d)
	}
	return list
}

// Describe implements prometheus.Collector.
func (k *Keeper) Describe(to chan<- *prometheus.Desc) {
	for _, d := range Descriptions() {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (k *Keeper) Collect(to chan<- prometheus.Metric) {
	for _, c := range k.figures.all() {
		c.Collect(to)
	}
	stopped, held := 0, int64(0)
	all, err := k.records.all()
	if err != nil {
		k.Log.V(1).Info("what is held was not read for the metrics", "error", err.Error())
	}
	for _, one := range all {
		if one.stops() {
			stopped++
		}
		for _, a := range one.Archives {
			held += a.Bytes
		}
	}
	to <- prometheus.MustNewConstMetric(descStopped, prometheus.GaugeValue, float64(stopped))
	to <- prometheus.MustNewConstMetric(descHeld, prometheus.GaugeValue, float64(held))
	to <- prometheus.MustNewConstMetric(descQuota, prometheus.GaugeValue, float64(k.Limits.Quota))
}
