package ebpf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Errors of Open, for errors.Is.
var (
	// ErrUnsupported: the kernel lacks something that the programs cannot do without.
	ErrUnsupported = errors.New("not supported by this kernel")
	// ErrPermission: the process lacks a right.
	ErrPermission = errors.New("not permitted")
)

// features is what the kernel has, by its type information.
type features struct {
	dlThrottle bool // the tracepoint sched_dl_throttle_tp
	rtGroups   bool // an account for each RT group
	queued     bool // a record of when a thread was put on the run queue
}

// probe reads the kernel's type information.
func probe() (features, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return features{}, fmt.Errorf("reading the kernel's type information (CONFIG_DEBUG_INFO_BTF, /sys/kernel/btf/vmlinux): %w: %w", ErrUnsupported, err)
	}
	var tracepoint *btf.Typedef
	if err := spec.TypeByName("btf_trace_sched_switch", &tracepoint); err != nil {
		return features{}, fmt.Errorf("looking for the tracepoint sched_switch: %w: %w", ErrUnsupported, err)
	}
	return features{
		dlThrottle: takes(spec, "sched_dl_throttle_tp", "sched_dl_entity"),
		rtGroups:   hasMember(spec, "sched_rt_entity", "rt_rq"),
		queued:     hasMember(spec, "sched_info", "last_queued"),
	}, nil
}

// takes says whether there is a tracepoint whose first argument points to a structure.
func takes(spec *btf.Spec, tracepoint, structure string) bool {
	var t *btf.Typedef
	if err := spec.TypeByName("btf_trace_"+tracepoint, &t); err != nil {
		return false
	}
	function, is := btf.UnderlyingType(t.Type).(*btf.Pointer)
	if !is {
		return false
	}
	proto, is := btf.UnderlyingType(function.Target).(*btf.FuncProto)
	if !is || len(proto.Params) < 2 { // the first is the tracepoint's own
		return false
	}
	argument, is := btf.UnderlyingType(proto.Params[1].Type).(*btf.Pointer)
	if !is {
		return false
	}
	s, is := btf.UnderlyingType(argument.Target).(*btf.Struct)
	return is && s.Name == structure
}

// hasMember says whether a structure of the kernel has a member.
func hasMember(spec *btf.Spec, structure, member string) bool {
	var s *btf.Struct
	if err := spec.TypeByName(structure, &s); err != nil {
		return false
	}
	for _, m := range s.Members {
		if m.Name == member {
			return true
		}
	}
	return false
}

// hook names what sees overruns.
func (f features) hook() string {
	if f.dlThrottle {
		return "raw_tp/sched_dl_throttle_tp, tp_btf/sched_switch + bpf_timer"
	}
	return "tp_btf/sched_switch + bpf_timer"
}

// notes says what is missing.
func (f features) notes(o Options) []string {
	var notes []string
	if !f.dlThrottle {
		notes = append(notes, "the kernel has no tracepoint sched_dl_throttle_tp: a throttled SCHED_DEADLINE thread is seen when it is switched out")
	}
	if !f.rtGroups {
		notes = append(notes, "the kernel has no RT groups (CONFIG_RT_GROUP_SCHED): budgets of real-time threads are our own account")
	}
	if !f.queued {
		notes = append(notes, "the kernel does not record when threads are queued (CONFIG_SCHED_INFO): windows and jobs begin when a thread first runs")
		if o.RunQueue {
			notes = append(notes, "run-queue latency cannot be measured without CONFIG_SCHED_INFO")
		}
	}
	return notes
}

// needed are the capabilities that loading and attaching takes.
var needed = []struct {
	bit  uint
	name string
}{{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_PERFMON, "CAP_PERFMON"}}

// explain gives an error its kind: that of a missing right when the process lacks one.
func explain(err error) error {
	if errors.Is(err, ErrUnsupported) || errors.Is(err, ErrPermission) {
		return err
	}
	missing := missingCapabilities()
	var rejected *ebpf.VerifierError
	switch {
	case len(missing) > 0:
		return fmt.Errorf("%w: the process lacks %s: %w", ErrPermission, strings.Join(missing, " and "), err)
	case errors.As(err, &rejected), errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: a security module, seccomp or lockdown refuses it: %w", ErrPermission, err)
	}
	return err
}

// missingCapabilities are those of needed that the process has not. CAP_SYS_ADMIN stands for both.
func missingCapabilities() []string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return nil
	}
	has := func(bit uint) bool { return sets[bit/32].Effective&(1<<(bit%32)) != 0 }
	if has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	var missing []string
	for _, c := range needed {
		if !has(c.bit) {
			missing = append(missing, c.name)
		}
	}
	return missing
}
