package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
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
	// CertService is the DNS name of the agents' Service, for which the agent requests a certificate from the
	// controller; empty: it requests none.
	CertService string
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
	// Checkpoint has the agent take the state of containers to other nodes and theirs to this one. The rest is for that.
	Checkpoint bool
	// CheckpointHost and CheckpointPort are where other agents reach this one.
	CheckpointHost string
	CheckpointPort int
	// CheckpointRate of all transfers from this node together, in bytes per second; 0: no bound. CheckpointMaxBytes is the
	// largest archive, CheckpointQuota is for all that the node holds, and CheckpointKeepFree stays free on the disk, or
	// CheckpointKeepFreePercent of it, if that is more.
	CheckpointRate, CheckpointMaxBytes, CheckpointQuota, CheckpointKeepFree int64
	CheckpointKeepFreePercent                                               int
	// KubeletEndpoint is the host and port of the kubelet's API, KubeletCA the file of who signed its certificate; empty:
	// who signed the API server's.
	KubeletEndpoint, KubeletCA string
	// ContainerdSocket and ContainerdSnapshotter are those of the container runtime.
	ContainerdSocket, ContainerdSnapshotter string
	// CRIU is the path of criu, to be asked for its version; empty: it is not asked.
	CRIU string
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
	f.StringVar(&o.CertService, "cert-service", "", "DNS name of the agents' Service, such as mainspring-agent.mainspring-system.svc. The agent requests a certificate for it from the controller, and shows it to clients that ask for that name. Empty: it requests none")
	f.DurationVar(&o.Heartbeat, "heartbeat", 5*time.Second, "How often the agent shows by its Lease that it lives")
	f.IntVar(&o.BusyPercent, "busy-percent", 90, "CPU utilisation of the node, in percent, from which it may count as busy")
	f.DurationVar(&o.BusyAfter, "busy-after", 5*time.Second, "How long the utilisation must be that high before the node counts as busy")
	f.DurationVar(&o.CalmAfter, "calm-after", 5*time.Second, "How long it must be lower before the node counts as calm. Raised budgets are given back recoveryDelay of their McKube later")
	f.StringVar(&o.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "The kubelet's data directory, for claims on cores. Empty: cores are not published")
	f.StringVar(&o.CDIDir, "cdi-dir", driver.DefaultCDIDir, "Where the container runtime looks for CDI specifications")
	f.StringVar(&o.NRISocket, "nri-socket", nri.DefaultSocket, "NRI socket of the container runtime. Empty: containers get their budget only once the kubelet reports them")
	o.checkpointFlags(f)
	f.Int64Var(&o.EscalationReserve, "escalation-reserve-ppm", 0, "Capacity of each core, in parts per million, that is kept for raising containers of admission Limited; with backends hcbs and deadline none is")
	f.Int64Var(&o.MemoryLimit, "memory-limit-mib", 32, "Memory in MiB from which the garbage collector works harder. 0: no limit")
	f.IntVar(&o.Verbosity, "v", 0, "Verbosity of the log: 0, or 1 for more")
	return f
}

func (o *Options) checkpointFlags(f *flag.FlagSet) {
	f.BoolVar(&o.Checkpoint, "checkpoint", false, "Take the state of containers to other nodes, and theirs to this one, as NodeCheckpoints say")
	f.StringVar(&o.CheckpointHost, "checkpoint-host", "", "Address at which other agents reach this one")
	f.IntVar(&o.CheckpointPort, "checkpoint-port", 8091, "Port at which other agents fetch archives, over TLS with certificates of both")
	f.Int64Var(&o.CheckpointRate, "checkpoint-rate", 100<<20, "Bytes per second of all transfers from this node together. 0: as fast as it goes")
	f.Int64Var(&o.CheckpointMaxBytes, "checkpoint-max-bytes", 4<<30, "Size of the largest archive, in bytes. 0: no bound")
	f.Int64Var(&o.CheckpointQuota, "checkpoint-quota", 16<<30, "Size of all archives that this node holds, in bytes. 0: no bound")
	f.Int64Var(&o.CheckpointKeepFree, "checkpoint-keep-free", 2<<30, "Bytes of the disk that archives leave free")
	f.IntVar(&o.CheckpointKeepFreePercent, "checkpoint-keep-free-percent", 15, "Share of the disk that archives leave free, where that is more, in percent: no less than what the kubelet evicts pods at")
	f.StringVar(&o.KubeletEndpoint, "kubelet-endpoint", "", "Host and port of the kubelet's API, such as 192.0.2.1:10250")
	f.StringVar(&o.KubeletCA, "kubelet-ca", "", "File with the certificate of who signed the kubelet's. Empty: who signed the API server's")
	f.StringVar(&o.ContainerdSocket, "containerd-socket", containerd.DefaultSocket, "Socket of containerd")
	f.StringVar(&o.ContainerdSnapshotter, "containerd-snapshotter", "overlayfs", "Snapshotter of containerd that the kubelet's images are in")
	f.StringVar(&o.CRIU, "criu", "", "Path of criu, to be asked for its version and whether it works here. Empty: it is not asked, and the runtime finds it by itself")
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
	refuse(o.CertService != "" && (o.CertDir != "" || len(validation.IsDNS1123Subdomain(o.CertService)) > 0), "--cert-service is %q with --cert-dir %q; it must be the DNS name of the agents' Service, without --cert-dir", o.CertService, o.CertDir)
	refuse(outside(o.Heartbeat, time.Second, time.Minute), "--heartbeat is %s; it must be from 1s to 1m", o.Heartbeat)
	refuse(o.BusyPercent < 1 || o.BusyPercent > 100, "--busy-percent is %d; it must be from 1 to 100", o.BusyPercent)
	refuse(outside(o.BusyAfter, 0, time.Hour), "--busy-after is %s; it must be from 0s to 1h", o.BusyAfter)
	refuse(outside(o.CalmAfter, 0, time.Hour), "--calm-after is %s; it must be from 0s to 1h", o.CalmAfter)
	refuse(o.EscalationReserve < 0 || o.EscalationReserve > int64(rt.MaxCapacity), "--escalation-reserve-ppm is %d; it must be from 0 to %d", o.EscalationReserve, rt.MaxCapacity)
	if o.Checkpoint {
		refuse(net.ParseIP(o.CheckpointHost) == nil, "--checkpoint-host is %q; want the address at which other agents reach this one", o.CheckpointHost)
		refuse(o.CheckpointPort < 1 || o.CheckpointPort > 65535, "--checkpoint-port is %d; it must be from 1 to 65535", o.CheckpointPort)
		refuse(o.KubeletEndpoint == "" || o.KubeletDir == "", "--kubelet-endpoint and --kubelet-dir are needed for checkpoints; want host:port and the kubelet's data directory")
		refuse(o.ContainerdSocket == "", "--containerd-socket is empty; want the path of containerd's socket")
		for _, n := range []int64{o.CheckpointRate, o.CheckpointMaxBytes, o.CheckpointQuota, o.CheckpointKeepFree} {
			refuse(n < 0, "a size of --checkpoint-* is %d; it must be at least 0", n)
		}
		refuse(o.CheckpointKeepFreePercent < 0 || o.CheckpointKeepFreePercent > 99, "--checkpoint-keep-free-percent is %d; it must be from 0 to 99", o.CheckpointKeepFreePercent)
	}
	refuse(o.MemoryLimit < 0, "--memory-limit-mib is %d; it must be at least 0", o.MemoryLimit)
	return errors.Join(faults...)
}
