package main

import (
	"fmt"

	"github.com/mainspring-rt/mainspring/test/bench/report"
)

// Average times from an overrun to the raised budget that MC-Kube's authors report, in microseconds.
const (
	referenceMCKube = 299
	referenceRTKube = 73_770
)

// leastEvents is how many events each figure needs at least.
const leastEvents = 2000

// findings are all that was measured.
type findings struct {
	floors []floor // idle and loaded
	rounds []round // idle and loaded, each without and with a lead
	crowd  crowd
}

func (f findings) round(loaded, lead bool) (round, error) {
	for _, r := range f.rounds {
		if r.loaded == loaded && (r.leadUs > 0) == lead {
			return r, nil
		}
	}
	return round{}, fmt.Errorf("no round with loaded %t and lead %t", loaded, lead)
}

func (f findings) figures() ([]report.Figure, error) {
	var out []report.Figure
	events, lost := 0, f.crowd.lost
	for _, load := range []struct {
		prefix, name string
		loaded       bool
	}{{"", "idle", false}, {"loaded_", "one spinning CFS thread per core", true}} {
		plain, err := f.round(load.loaded, false)
		if err != nil {
			return nil, err
		}
		led, err := f.round(load.loaded, true)
		if err != nil {
			return nil, err
		}
		out = append(out, reactions(load.prefix, load.name, plain, led)...)
		events += len(plain.react) + len(led.react)
		lost += plain.lost + led.lost
	}
	plain, err := f.round(true, false)
	if err != nil {
		return nil, err
	}
	c := f.crowd
	out = append(out, floors(f.floors)...)
	return append(out,
		report.Figure{Key: "detect_p50_us", Value: plain.detect.Quantile(0.5), Note: "loaded: from the end of the budget to the program that saw it"},
		report.Figure{Key: "detect_p99_us", Value: plain.detect.Quantile(0.99)},
		report.Figure{Key: "actuate_p50_us", Value: plain.actuate.Quantile(0.5), Note: "loaded: from the reader's waking to the written budget, decision included"},
		report.Figure{Key: "events", Value: float64(events), Goal: ">= 2000 each", Note: fmt.Sprintf("raises in %d rounds", len(f.rounds))},
		report.Figure{Key: "lost_events", Value: float64(lost), Goal: "0"},
		report.Figure{Key: "bpf_ns_per_switch", Value: plain.perSwitch.mean(), Goal: "<= 300", Note: fmt.Sprintf("over %d switches of all threads, loaded; some 20 ns are the kernel's statistics", plain.perSwitch.runs)},
		report.Figure{Key: "cpu_percent", Value: c.cpu(), Goal: "< 1", Note: fmt.Sprintf("of a core, %d containers, %.0f events/s, of which %.0f raises; fast path %.2f, the rest %.2f", c.servers, c.eventsPerS, c.raisesPerS, c.cpuPercent["fastpath"], c.cpuPercent["agent"])},
		report.Figure{Key: "rss_mib", Value: c.rss(), Goal: "< 40", Note: c.split()},
	), nil
}

// reactions are the figures of one load: without a lead, and how often a raise with the lead came in time.
func reactions(prefix, name string, plain, led round) []report.Figure {
	few := ""
	if least := min(len(plain.react), len(led.react)); least < leastEvents {
		few = fmt.Sprintf("; ONLY %d events", least)
	}
	return []report.Figure{
		{Key: prefix + "react_p50_us", Value: plain.react.Quantile(0.5), Goal: "<= 40 loaded", Note: fmt.Sprintf("budget's end to raised budget, lead 0, %s, n %d; reference averages: MC-Kube %d, RT-Kube %d%s", name, len(plain.react), referenceMCKube, referenceRTKube, few)},
		{Key: prefix + "react_p99_us", Value: plain.react.Quantile(0.99), Goal: "<= 70 loaded"},
		{Key: prefix + "react_p999_us", Value: plain.react.Quantile(0.999)},
		{Key: prefix + "react_max_us", Value: plain.react.Max()},
		{Key: prefix + "raised_before_end_ratio", Value: led.inTime(), Goal: ">= 0.999", Note: fmt.Sprintf("lead %d us, %s, n %d, counted raise by raise, small budgets with a quarter of themselves as lead: %s; least slack %.0f us, p50 %.0f us; %s; the hypervisor took the core for %s%s", led.leadUs, name, len(led.react), led.wholeInTime(), led.slack.Quantile(0), led.slack.Quantile(0.5), led.late, led.stolen, few)},
	}
}
