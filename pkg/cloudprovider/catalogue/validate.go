package catalogue

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// validate reports everything that is wrong, not only the first thing.
func (c *Catalogue) validate() error {
	var errs []error
	if len(c.InstanceTypes) == 0 {
		errs = append(errs, errors.New("instanceTypes is empty; at least one entry is needed"))
	}
	first := map[string]int{}
	for i, it := range c.InstanceTypes {
		if at, ok := first[it.Name]; ok {
			errs = append(errs, fmt.Errorf("%s: name: instanceTypes[%d] has the same; names must be unique", place(i, it.Name), at))
		}
		first[it.Name] = i
		for _, err := range c.check(it) {
			errs = append(errs, fmt.Errorf("%s: %w", place(i, it.Name), err))
		}
	}
	return errors.Join(errs...)
}

// check lists the faults of one entry.
func (c *Catalogue) check(it *InstanceType) []error {
	p := &problems{sources: c.Sources}
	p.label("name", it.Name)
	p.oneOf("class", string(it.Class), string(General), string(GPU), string(NPU), string(Edge))
	p.label("family", it.Family)
	p.oneOf("architecture", it.Architecture, "amd64", "arm64")
	p.positive("cpu", it.CPU)
	p.positive("memoryGiB", it.MemoryGiB)
	p.positive("pods", it.Pods)
	p.positive("ephemeralGiB", it.EphemeralGiB)
	p.zones(it.Zones)
	p.price("price", it.Price.OnDemand, it.Price.Source)
	if it.Price.Spot < 0 {
		p.add("price.spot is %v; it must be above 0, or left out where there is no spot offering", it.Price.Spot)
	}
	p.watts(it)
	p.devices("gpus", it.GPUs)
	p.devices("npus", it.NPUs)
	p.reserved(it)
	p.rt(it)
	return p.list
}

// problems collects faults of one entry, each naming field, value and what would be right.
type problems struct {
	sources map[string]string
	list    []error
}

func (p *problems) add(format string, args ...any) {
	p.list = append(p.list, fmt.Errorf(format, args...))
}

func (p *problems) label(field, value string) {
	if value == "" {
		p.add("%s is empty; it is required", field)
		return
	}
	for _, reason := range validation.IsValidLabelValue(value) {
		p.add("%s is %q, which is no label value: %s", field, value, reason)
	}
}

func (p *problems) oneOf(field, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		p.add("%s is %q; it must be one of %s", field, value, strings.Join(allowed, ", "))
	}
}

func (p *problems) positive(field string, value int) {
	if value < 1 {
		p.add("%s is %d; it must be a whole number of at least 1", field, value)
	}
}

func (p *problems) source(field, value string) {
	if _, ok := p.sources[value]; !ok {
		p.add("%s is %q; it must be a key of sources", field, value)
	}
}

func (p *problems) price(field string, value float64, source string) {
	if value <= 0 {
		p.add("%s is %v; it must be above 0 (USD per hour)", field, value)
	}
	p.source(field+".source", source)
}

func (p *problems) zones(zones []string) {
	if len(zones) == 0 {
		p.add("zones is empty; name zones here or at the top of the file")
	}
	for i, zone := range zones {
		p.label(fmt.Sprintf("zones[%d]", i), zone)
		if slices.Index(zones, zone) < i {
			p.add("zones[%d] is %q, which is there twice; zones must be unique", i, zone)
		}
	}
}

func (p *problems) watts(it *InstanceType) {
	w := it.Watts
	if w.Idle <= 0 {
		p.add("watts.idle is %v; it must be above 0 (watts)", w.Idle)
	}
	if w.Max < w.Idle {
		p.add("watts.max is %v; it must be at least watts.idle, %v", w.Max, w.Idle)
	}
	p.source("watts.source", w.Source)
	p.deviceWatts(it)
}

func (p *problems) deviceWatts(it *InstanceType) {
	w, d := it.Watts, it.Watts.Devices
	if d == nil {
		return
	}
	if it.GPUs == nil && it.NPUs == nil {
		p.add("watts.devices is given without gpus or npus; give one of them, or leave it out")
	}
	if d.Idle < 0 || d.Idle > w.Idle {
		p.add("watts.devices.idle is %v; it must be from 0 to watts.idle, %v", d.Idle, w.Idle)
	}
	if d.Max < d.Idle {
		p.add("watts.devices.max is %v; it must be at least watts.devices.idle, %v", d.Max, d.Idle)
	}
	if host := w.Idle - d.Idle; w.Max-d.Max < host {
		p.add("watts.devices.max is %v; it must be at most %v, so that the loaded host draws what the idle one does", d.Max, w.Max-host)
	}
}

func (p *problems) devices(field string, d *Devices) {
	if d == nil {
		return
	}
	p.positive(field+".count", d.Count)
	p.label(field+".model", d.Model)
	if !strings.Contains(d.Resource, "/") {
		p.add("%s.resource is %q; it must be an extended resource, <domain>/<name>", field, d.Resource)
	}
	for _, reason := range validation.IsQualifiedName(d.Resource) {
		p.add("%s.resource is %q, which is no resource name: %s", field, d.Resource, reason)
	}
}

func (p *problems) reserved(it *InstanceType) {
	r := it.Reserved
	if r == nil {
		return
	}
	p.positive("reserved.count", r.Count)
	p.price("reserved.price", r.Price, r.Source)
	if !slices.Contains(it.Zones, r.Zone) {
		p.add("reserved.zone is %q; it must be one of the entry's zones: %s", r.Zone, strings.Join(it.Zones, ", "))
	}
	p.label("reserved id (name.zone)", it.ReservationID())
}

func (p *problems) rt(it *InstanceType) {
	r := it.RT
	if r == nil {
		return
	}
	p.positive("rt.numaNodes", r.NUMANodes)
	p.positive("rt.coresPerNuma", r.CoresPerNUMA)
	if r.NUMANodes < 1 || r.CoresPerNUMA < 1 {
		return
	}
	if r.CPUs() != it.CPU {
		p.add("rt describes %d logical CPUs (numaNodes x coresPerNuma, twice with smt); it must describe cpu, %d", r.CPUs(), it.CPU)
	}
	if r.BandwidthPPM < 1 || r.BandwidthPPM > 1_000_000 {
		p.add("rt.bandwidthPpm is %d; it must be from 1 to 1000000", r.BandwidthPPM)
	}
	if r.GranularityUs < 0 || r.GranularityUs > maxGranularityUs {
		p.add("rt.granularityUs is %d; it must be from 1 to %d microseconds, or left out for %d", r.GranularityUs, maxGranularityUs, DefaultGranularityUs)
	}
	p.source("rt.source", r.Source)
	p.housekeeping(r)
	p.escalation(r)
}

// maxGranularityUs is a kernel's tick at 100 Hz.
const maxGranularityUs = 10_000

func (p *problems) escalation(r *RT) {
	if r.EscalationReservePPM < 0 || rt.PPM(r.EscalationReservePPM) >= r.theta() {
		p.add("rt.escalationReservePpm is %d; it must be from 0 to less than %d, what may be promised of a core", r.EscalationReservePPM, r.theta())
	}
	if len(r.EscalationCores) > 0 && r.EscalationReservePPM == 0 {
		p.add("rt.escalationCores is given without rt.escalationReservePpm; give both or neither")
	}
	for i, id := range r.EscalationCores {
		field := fmt.Sprintf("rt.escalationCores[%d]", i)
		switch {
		case id < 0 || id >= r.CPUs():
			p.add("%s is %d; it must be from 0 to %d", field, id, r.CPUs()-1)
		case slices.Index(r.EscalationCores, id) < i:
			p.add("%s is %d, which is there twice; CPUs must be unique", field, id)
		case slices.Contains(r.Housekeeping, id):
			p.add("%s is %d, which rt.housekeeping keeps for the system", field, id)
		}
	}
}

func (p *problems) housekeeping(r *RT) {
	if len(r.Housekeeping) == 0 {
		p.add("rt.housekeeping is empty; at least one CPU must be kept for the system")
	}
	for i, id := range r.Housekeeping {
		field := fmt.Sprintf("rt.housekeeping[%d]", i)
		switch {
		case id < 0 || id >= r.CPUs():
			p.add("%s is %d; it must be from 0 to %d", field, id, r.CPUs()-1)
		case slices.Index(r.Housekeeping, id) < i:
			p.add("%s is %d, which is there twice; CPUs must be unique", field, id)
		case r.SMT && !slices.Contains(r.Housekeeping, r.sibling(id)):
			p.add("%s is %d without its SMT sibling %d; both threads of a core must be kept", field, id, r.sibling(id))
		}
	}
	if len(r.Housekeeping) >= r.CPUs() {
		p.add("rt.housekeeping holds every CPU; leave some for real-time work, or leave rt out")
	}
}
