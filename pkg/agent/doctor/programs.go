package doctor

import (
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

const btfPath = "/sys/kernel/btf/vmlinux"

func (e *exam) btf() Finding {
	if there, saw := e.exists(btfPath); !there {
		return problem("the agent's programs cannot be fitted to this kernel: no overrun is seen", "boot a kernel with CONFIG_DEBUG_INFO_BTF").saw(saw)
	}
	return ok("the agent's programs can be fitted to this kernel").saw(Reading{btfPath, "there"})
}

// The tracepoints, as the kernel's type information names them.
const (
	traceSwitch   = "btf_trace_sched_switch"
	traceThrottle = "btf_trace_sched_dl_throttle_tp"
)

func (e *exam) tracepoints() Finding {
	names, err := e.h.BTFNames(traceSwitch, traceThrottle)
	if err != nil {
		return problem("which tracepoints there are cannot be read", "see check btf").saw(Reading{btfPath, unreadable(err)})
	}
	var saw []Reading
	for _, name := range []string{traceSwitch, traceThrottle} {
		what := "no " + name
		if names[name] {
			what = name
		}
		saw = append(saw, Reading{btfPath, what})
	}
	switch {
	case !names[traceSwitch]:
		return problem("the tracepoint of context switches is missing: no overrun is seen", "boot a kernel with CONFIG_TRACEPOINTS and BTF").saw(saw...)
	case !names[traceThrottle]:
		return note("the kernel does not tell when it throttles: overruns are seen at context switches, and by a timer that is set for the end of each budget", "").saw(saw...)
	}
	return ok("the kernel tells of context switches and of throttled deadlines").saw(saw...)
}

// fentry was the hook of other agents; ours goes without.
func (e *exam) fentry() Finding {
	value, known, saw := e.option("CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS")
	const unneeded = "; the agent does not need it"
	if e.tried && e.tryErr == nil {
		tried := Reading{"bpf(2)", "a program at the entry of a kernel function loads"}
		if e.programs.Fentry != nil {
			tried.What = e.programs.Fentry.Error()
			return ok("programs at the entry of kernel functions are refused"+unneeded).saw(saw, tried)
		}
		return ok("programs may be put at the entry of kernel functions"+unneeded).saw(saw, tried)
	}
	if known && value != "y" {
		return ok("programs cannot be put at the entry of kernel functions" + unneeded).saw(saw)
	}
	return ok("whether programs may be put at the entry of kernel functions was not tried" + unneeded).saw(saw)
}

const lockdownPath = "/sys/kernel/security/lockdown"

func (e *exam) lockdown() Finding {
	text, saw := e.read(lockdownPath)
	switch {
	case strings.Contains(text, "[confidentiality]"):
		return problem("the kernel's memory may not be read by programs: what is left of budgets cannot be seen", "boot with lockdown=integrity or none; secure boot may have to be off").saw(saw)
	case strings.Contains(text, "[integrity]"):
		return note("debugfs cannot be read: scheduler features and the kernel's servers are not known, and are measured or assumed. Programs work", "").saw(saw)
	case strings.Contains(text, "[none]"):
		return ok("the kernel is not locked down").saw(saw)
	}
	return note("whether the kernel is locked down cannot be read; then debugfs would not be readable either", "mount -t securityfs none /sys/kernel/security").saw(saw)
}

// loading tells of the programs, where they were tried.
func (e *exam) loading() Finding {
	saw := Reading{"bpf(2)", "not tried"}
	if !e.tried {
		return note("whether the agent's programs load was not tried", "mainspring doctor tries it on the machine that it runs on").saw(saw)
	}
	if e.tryErr != nil {
		saw.What = e.tryErr.Error()
		if e.options.Denied != nil && e.options.Denied(e.tryErr) {
			return problem("this process may not load the agent's programs: no overrun would be seen", "give it CAP_BPF and CAP_PERFMON; where it has them, look at seccomp and the security modules").saw(saw)
		}
		return problem("the agent's programs do not load: no overrun would be seen", "see checks btf, tracepoints and lockdown").saw(saw)
	}
	saw.What = "loaded and attached: " + e.programs.Hook
	readings := []Reading{saw}
	for _, n := range e.programs.Notes {
		readings = append(readings, Reading{"bpf(2)", n})
	}
	return ok("the agent's programs load, attach and were taken away again").saw(readings...)
}

// costs of a missing capability.
var costs = map[host.Capability]func(string) Finding{
	host.CapBPF: func(mend string) Finding {
		return problem("programs cannot be loaded: no overrun is seen, no budget raised", mend)
	},
	host.CapPerfmon: func(mend string) Finding {
		return problem("programs may not read the scheduler's memory: no overrun is seen, no budget raised", mend)
	},
	host.CapSysNice: func(mend string) Finding {
		return problem("the fast path runs as an ordinary task: under load its answer takes milliseconds instead of a tenth of one. Backends fifo and deadline do not work at all", mend)
	},
	host.CapIPCLock: func(mend string) Finding {
		return warning("memory of the fast path can be locked only within RLIMIT_MEMLOCK (check memlock): a page that is fetched back delays an answer", mend)
	},
}

// serves says which capability stands in for another.
var serves = map[host.Capability]host.Capability{host.CapBPF: host.CapSysAdmin, host.CapPerfmon: host.CapSysAdmin}

// capability is a check of one.
func capability(c host.Capability) func(*exam) Finding {
	return func(e *exam) Finding {
		set, saw := e.rights()
		if set.Has(c) {
			return ok("this process has " + c.String()).saw(saw)
		}
		if stand, known := serves[c]; known && set.Has(stand) {
			return ok("this process has " + stand.String() + ", which stands for " + c.String()).saw(saw)
		}
		f := costs[c]("add " + c.String() + " to securityContext.capabilities.add of the agent's container")
		f.Means = "this process has not " + c.String() + ": " + f.Means
		return f.saw(saw)
	}
}

// rights are the capabilities of this process; none when they cannot be read.
func (e *exam) rights() (set host.Capabilities, saw Reading) {
	saw = Reading{Where: "/proc/self/status"}
	set, err := e.h.Capabilities()
	if err != nil {
		saw.What = unreadable(err)
		return 0, saw
	}
	saw.What = set.Text()
	return set, saw
}

// lockedBytes is what the fast path may lock: its goal for memory, with room.
const lockedBytes = 64 << 20

func (e *exam) memlock() Finding {
	const where = "/proc/self/limits"
	set, _ := e.rights()
	limit, err := e.h.MemlockLimit()
	if err != nil {
		return note("how much memory may be locked cannot be read", "").saw(Reading{where, unreadable(err)})
	}
	saw := Reading{where, "Max locked memory " + limit.String()}
	switch {
	case set.Has(host.CapIPCLock):
		return ok("memory can be locked without a limit, by CAP_IPC_LOCK").saw(saw)
	case limit.Unlimited || limit.Bytes >= lockedBytes:
		return ok("memory of the fast path can be locked").saw(saw)
	}
	return warning("memory of the fast path cannot be locked: a page that is fetched back delays an answer",
		"add CAP_IPC_LOCK, or set LimitMEMLOCK=infinity of the container runtime's service").saw(saw)
}
