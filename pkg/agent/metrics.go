package agent

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// collector serves the last report as metrics. Series of a container end with its server. The controller serves
// overruns, misses and drift under the same names, as RTNode.status says: the job tells the two apart.
type collector struct {
	node    string
	world   func() *World
	counted func() *Counted
}

var (
	perServer     = []string{"namespace", "pod", "container"}
	descOverruns  = describe("overruns_total", "Periods in which a container used up its budget with work pending.", perServer...)
	descMisses    = describe("deadline_misses_total", "Jobs of a container that ended after their deadline.", perServer...)
	descJobs      = describe("jobs_total", "Jobs of a container whose end was seen.", perServer...)
	descThrottles = describe("throttles_total", "How often a container was stopped for the rest of its period.", perServer...)
	descDrift     = describe("drift_total", "Changes that something else made to what was applied to a container.", perServer...)
	descSqueezes  = describe("squeezes_total", "How often a container gave budget up for a more critical one.", perServer...)
	descDetect    = describe("overrun_detect_seconds", "From the instant when a budget was to be raised to the program that saw it.")
	descReact     = describe("overrun_react_seconds", "From the instant when a budget was to be raised to the new budget in force.")
	descEscalate  = describe("escalations_total", "Raises of budgets by the fast path: raised, partial (less room than asked for), denied (no room), refused (by the kernel).", "result")
	descRecover   = describe("recoveries_total", "Budgets that were given back by the fast path.")
	descBandwidth = describe("core_bandwidth_ratio", "Share of a core: capacity may be promised, in-force is promised now.", "node", "core", "kind")
	descEvents    = describe("events_total", "Events that the programs in the kernel have told.")
	descLost      = describe("events_lost_total", "Events that did not fit in the ring buffers.")
	descUnseen    = describe("switches_unseen_total", "How often a thread came to its core without the programs being called, because the kernel hides who left.")
	descGrain     = describe("budget_granularity_seconds", "How far a task ran past its budget in the self-test at start.", "node")
	descRealtime  = describe("fastpath_realtime", "1 while every thread of the fast path has a real-time policy.")
	descFaults    = describe("container_fault", "1 while a container's fault is latched: it overran its highest budget again and again.", perServer...)
	descEscapes   = describe("container_escapes", "1 while a container's budget does not hold it as a whole, or not all of it is seen.", perServer...)
	descAnswers   = describe("fastpath_up", "1 while the fast path answers.")
	descBroken    = describe("promises_broken_total", "How often more was promised on a core than its plan allows. Always 0, or there is a defect.", "node", "core")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("mainspring_"+name, help, labels, nil)
}

// Descriptions of every metric that the agent serves of its own.
func Descriptions() []*prometheus.Desc {
	return []*prometheus.Desc{
		descOverruns, descMisses, descJobs, descThrottles, descDrift, descSqueezes, descDetect, descReact, descEscalate, descRecover,
		descBandwidth, descEvents, descLost, descUnseen, descGrain, descAnswers, descRealtime, descFaults, descEscapes, descBroken,
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range Descriptions() {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	counted := c.counted()
	if counted == nil {
		counted = &Counted{}
	}
	up := 0.0
	if counted.Err == nil && counted.Report.Instance != "" {
		up = 1
	}
	to <- gauge(descAnswers, up)
	to <- gauge(descRealtime, flagOf(counted.Report.Realtime))
	to <- gauge(descGrain, float64(counted.Report.GranularityUs)/1e6, c.node)
	to <- total(descEvents, counted.Events)
	to <- total(descLost, counted.Lost)
	to <- total(descUnseen, counted.Unseen)
	to <- histogramOf(descDetect, counted.Detect)
	to <- histogramOf(descReact, counted.React)
	c.collectCores(to, counted.Report)
	c.collectServers(to, counted)
}

func (c *collector) collectCores(to chan<- prometheus.Metric, report table.Report) {
	for _, core := range report.Cores {
		id := strconv.Itoa(core.ID)
		to <- gauge(descBandwidth, float64(core.CapacityPpm)/1e6, c.node, id, "capacity")
		to <- gauge(descBandwidth, float64(core.PromisedPpm)/1e6, c.node, id, "in-force")
		to <- total(descBroken, core.Broken, c.node, id)
	}
}

// collectServers serves the sums over all servers that ever were, and each container of the spec. One that is
// there twice, as for a moment after a pod was re-created under its name, is served once: a
// series given twice would fail the scrape.
func (c *collector) collectServers(to chan<- prometheus.Metric, counted *Counted) {
	to <- total(descEscalate, counted.All.Raises, metrics.ResultRaised)
	to <- total(descEscalate, counted.All.Partial, metrics.ResultPartial)
	to <- total(descEscalate, counted.All.Denied, metrics.ResultDenied)
	to <- total(descEscalate, counted.All.Refused, metrics.ResultRefused)
	to <- total(descRecover, counted.All.Recoveries)
	world := c.world()
	if world == nil || world.RTNode == nil {
		return
	}
	latched, escapes := map[string]bool{}, map[string]bool{}
	for _, s := range counted.Report.Servers {
		latched[s.ID], escapes[s.ID] = s.Fault, s.Escapes != ""
	}
	seen := map[[3]string]bool{}
	for _, s := range world.RTNode.Spec.Servers {
		if key := [3]string{s.Namespace, s.Pod, s.Container}; !seen[key] {
			seen[key] = true
			collectServer(to, s, counted.Servers[idOf(s)].Counts)
			to <- gauge(descFaults, flagOf(latched[idOf(s)]), s.Namespace, s.Pod, s.Container)
			to <- gauge(descEscapes, flagOf(escapes[idOf(s)]), s.Namespace, s.Pod, s.Container)
		}
	}
}

func collectServer(to chan<- prometheus.Metric, s v1alpha1.RTServer, n Counts) {
	for _, m := range []struct {
		desc  *prometheus.Desc
		count uint64
	}{
		{descOverruns, n.Overruns}, {descMisses, n.Misses}, {descJobs, n.Jobs},
		{descThrottles, n.Throttles}, {descDrift, n.Drift}, {descSqueezes, n.Squeezes},
	} {
		to <- total(m.desc, m.count, s.Namespace, s.Pod, s.Container)
	}
}

func flagOf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func total(d *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

// histogramOf turns microseconds into seconds, and counts into cumulative ones.
func histogramOf(d *prometheus.Desc, h table.Histogram) prometheus.Metric {
	buckets, count := make(map[float64]uint64, len(table.BucketUs)), uint64(0)
	for i, bound := range table.BucketUs {
		count += h.Count[i]
		buckets[float64(bound)/1e6] = count
	}
	count += h.Count[len(table.BucketUs)]
	return prometheus.MustNewConstHistogram(d, count, float64(h.SumUs)/1e6, buckets)
}
