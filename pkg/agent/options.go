package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/nri"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Options of an agent. Each flag can also be given as an environment variable: upper case, dashes as
// underscores.
type Options struct {
	// NodeName is the node's.
	NodeName string
	// Kubeconfig is the path of the kubeconfig; empty means the in-cluster configuration.
	Kubeconfig string
	// Socket of the fast path.
	Socket string
	// HostRoot is where the machine's file systems are: "/", or where they are mounted in the container.
	HostRoot string
	// StateDir keeps counters and a certificate that was made here.
	StateDir string
	// Host and Port of the front door; port 0 switches it off.
	Host string
	Port int
	// CertDir holds tls.crt and tls.key of the front door; empty: a certificate is made. DNSNames are
	// those of one that is made, separated by commas.
	CertDir, DNSNames string
	// Heartbeat is how often the agent shows that it lives.
	Heartbeat time.Duration
	// BusyPercent, BusyAfter and CalmAfter: a node counts as busy when its CPU has been at least that busy for
	// that long, and as calm when it has been less busy for that long.
	BusyPercent          int
	BusyAfter, CalmAfter time.Duration
	// KubeletDir and CDIDir are for claims on cores; KubeletDir empty switches them off.
	KubeletDir, CDIDir string
	// NRISocket of the container runtime; empty: containers get their budget after they have started.
	NRISocket string
	// EscalationReserve is kept of each core's capacity, in ppm, for the container that may be escalated
	// under admission Limited.
	EscalationReserve int64
	// MemoryLimit of this process in MiB, for the garbage collector.
	MemoryLimit int64
	// Verbosity of the log: 0 is what an operator wants to know, 1 for more.
	Verbosity int
}

func (o *Options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("agent", flag.ContinueOnError)
	f.StringVar(&o.NodeName, "node-name", "", "Name of the node that this agent is for")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "Path of the kubeconfig. Empty: the in-cluster configuration")
	f.StringVar(&o.Socket, "fastpath-socket", "/run/mainspring/fastpath.sock", "Socket of the fast path")
	f.StringVar(&o.HostRoot, "host-root", "/", "Where the machine's file systems are")
	f.StringVar(&o.StateDir, "state-dir", "/var/lib/mainspring/agent", "Directory for counters and a certificate that the agent made")
	f.StringVar(&o.Host, "host", "", "Address that the front door listens on. Empty: every address")
	f.IntVar(&o.Port, "port", 8080, "Port of /set-rt, /status, /metrics, /healthz and /readyz, over TLS. 0: off")
	f.StringVar(&o.CertDir, "cert-dir", "", "Directory with tls.crt and tls.key of the front door. Empty: the agent makes a certificate; clients verify it with tls/ca.crt in --state-dir")
	f.StringVar(&o.DNSNames, "dns-names", "localhost", "Comma-separated names in a certificate that the agent makes")
	f.DurationVar(&o.Heartbeat, "heartbeat", 5*time.Second, "How often the agent shows in RTNode.status that it lives")
	f.IntVar(&o.BusyPercent, "busy-percent", 90, "CPU utilisation of the node, in percent, from which it may count as busy")
	f.DurationVar(&o.BusyAfter, "busy-after", 5*time.Second, "How long the utilisation must be that high before the node counts as busy")
	f.DurationVar(&o.CalmAfter, "calm-after", 5*time.Second, "How long it must be lower before the node counts as calm. Raised budgets are given back recoveryDelay of their McKube later")
	f.StringVar(&o.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "The kubelet's data directory, for claims on cores. Empty: cores are not published")
	f.StringVar(&o.CDIDir, "cdi-dir", driver.DefaultCDIDir, "Where the container runtime looks for CDI specifications")
	f.StringVar(&o.NRISocket, "nri-socket", nri.DefaultSocket, "NRI socket of the container runtime. Empty: containers get their budget only once the kubelet reports them")
	f.Int64Var(&o.EscalationReserve, "escalation-reserve-ppm", 0, "Capacity of each core, in parts per million, that is kept for raising containers of admission Limited")
	f.Int64Var(&o.MemoryLimit, "memory-limit-mib", 32, "Memory in MiB from which the garbage collector works harder. 0: no limit")
	f.IntVar(&o.Verbosity, "v", 0, "Verbosity of the log: 0, or 1 for more")
	return f
}

// ErrUsage is wrapped by errors in what the caller asked for.
var ErrUsage = errors.New("usage")

// ParseOptions reads flags and environment. It returns flag.ErrHelp after writing the help to usage.
func ParseOptions(args []string, usage io.Writer) (Options, error) {
	o := Options{}
	flags := o.flags()
	flags.SetOutput(io.Discard)
	var faults []error
	flags.VisitAll(func(f *flag.Flag) {
		name := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value := os.Getenv(name); value != "" && f.Name != "v" && f.Name != "host" && f.Name != "port" {
			if err := flags.Set(f.Name, value); err != nil {
				faults = append(faults, fmt.Errorf("environment variable %s is %q: %w", name, value, err))
			}
		}
	})
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(usage)
		flags.PrintDefaults()
		return o, flag.ErrHelp
	}
	if err != nil {
		faults = append(faults, fmt.Errorf("%w; --help lists the flags", err))
	} else if flags.NArg() > 0 {
		faults = append(faults, fmt.Errorf("argument %q is not a flag; --help lists the flags", flags.Arg(0)))
	}
	if faults = append(faults, o.validate()); errors.Join(faults...) != nil {
		return o, fmt.Errorf("%w: %w", ErrUsage, errors.Join(faults...))
	}
	return o, nil
}

func (o Options) validate() error {
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	outside := func(d, low, high time.Duration) bool { return d < low || d > high }
	refuse(o.NodeName == "", "--node-name is empty; want the name of this node")
	refuse(o.Socket == "", "--fastpath-socket is empty; want the path of the fast path's socket")
	refuse(o.StateDir == "", "--state-dir is empty; want a directory that outlives the agent")
	refuse(o.Port < 0 || o.Port > 65535, "--port is %d; it must be from 1 to 65535, or 0 for no front door", o.Port)
	refuse(o.Port > 0 && o.CertDir == "" && o.DNSNames == "", "--dns-names is empty; a certificate needs a name")
	refuse(outside(o.Heartbeat, time.Second, time.Minute), "--heartbeat is %s; it must be from 1s to 1m", o.Heartbeat)
	refuse(o.BusyPercent < 1 || o.BusyPercent > 100, "--busy-percent is %d; it must be from 1 to 100", o.BusyPercent)
	refuse(outside(o.BusyAfter, 0, time.Hour), "--busy-after is %s; it must be from 0s to 1h", o.BusyAfter)
	refuse(outside(o.CalmAfter, 0, time.Hour), "--calm-after is %s; it must be from 0s to 1h", o.CalmAfter)
	refuse(o.EscalationReserve < 0 || o.EscalationReserve > int64(rt.MaxCapacity), "--escalation-reserve-ppm is %d; it must be from 0 to %d", o.EscalationReserve, rt.MaxCapacity)
	refuse(o.MemoryLimit < 0, "--memory-limit-mib is %d; it must be at least 0", o.MemoryLimit)
	return errors.Join(faults...)
}
