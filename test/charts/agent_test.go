package charts_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/node"
)

// agentValues switch the node agent on.
func agentValues(more object) object {
	agent := object{"enabled": true}
	for key, value := range more {
		agent[key] = value
	}
	return object{"agent": agent}
}

func daemonSet(t *testing.T, more object) *appsv1.DaemonSet {
	t.Helper()
	return decode[appsv1.DaemonSet](t, template(t, agentValues(more)), "DaemonSet", "mainspring-agent")
}

func containerNamed(t *testing.T, d *appsv1.DaemonSet, name string) corev1.Container {
	t.Helper()
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no container %s", name)
	}
	return d.Spec.Template.Spec.Containers[i]
}

// Both containers are root without capabilities, but for the four that the fast path cannot do without.
func TestAgentIsConfined(t *testing.T) {
	d := daemonSet(t, nil)
	pod := d.Spec.Template.Spec
	if !pod.HostPID || pod.HostNetwork || pod.HostIPC || *pod.AutomountServiceAccountToken || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod is %+v", pod)
	}
	for name, capabilities := range map[string][]corev1.Capability{"fastpath": {"BPF", "PERFMON", "SYS_NICE", "IPC_LOCK"}, "agent": nil} {
		s := containerNamed(t, d, name).SecurityContext
		if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, capabilities) {
			t.Errorf("the security context of %s is %+v", name, s)
		}
	}
	for _, want := range []string{"--cert-service=" + agentService, "--dns-names=" + agentService + ",$(NODE_NAME)"} {
		if !slices.Contains(containerNamed(t, d, "agent").Args, want) {
			t.Errorf("the agent's certificates are not those of %s", want)
		}
	}
	fast := containerNamed(t, d, "fastpath")
	if !fast.Resources.Limits.Cpu().IsZero() || len(fast.Ports) > 0 || fast.Resources.Limits.Memory().IsZero() {
		t.Errorf("the fast path has %+v and ports %v", fast.Resources, fast.Ports)
	}
	socket := "--socket=/run/mainspring/fastpath.sock"
	for _, probe := range []*corev1.Probe{fast.StartupProbe, fast.LivenessProbe} {
		if probe == nil || probe.Exec == nil || !slices.Equal(probe.Exec.Command, []string{"/fastpath", "--probe", socket}) || !slices.Contains(fast.Args, socket) {
			t.Errorf("the fast path is probed by %+v; want its own socket asked", probe)
		}
	}
	if probe := fast.StartupProbe; time.Duration(probe.PeriodSeconds*probe.FailureThreshold)*time.Second < node.LongestStart {
		t.Errorf("a start has %d times %d s; want no less than its steps may take, %s", probe.FailureThreshold, probe.PeriodSeconds, node.LongestStart)
	}
	// Who may write what of the node, and who talks to the API server.
	for _, tc := range []struct {
		container, volume string
		mounted, readOnly bool
	}{
		{"fastpath", "cgroup", true, false}, {"agent", "cgroup", true, true}, {"fastpath", "btf", true, true},
		{"fastpath", "tracing", true, true}, {"agent", "tracing", false, false},
		{"fastpath", "token", false, false}, {"agent", "token", true, true}, {"fastpath", "registry", false, false},
		{"fastpath", "nri", false, false}, {"agent", "nri", true, false}, {"fastpath", "socket", true, false}, {"agent", "socket", true, false},
	} {
		mounts := containerNamed(t, d, tc.container).VolumeMounts
		i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == tc.volume })
		if (i >= 0) != tc.mounted || i >= 0 && mounts[i].ReadOnly != tc.readOnly {
			t.Errorf("%s of %s: %+v", tc.volume, tc.container, mounts)
		}
	}
}

// agentFlags lists for each value of the chart what one of the programs must be given.
var agentFlags = []struct {
	path            string
	value           any
	container, want string
}{
	{"backend", "fifo", "fastpath", "--backend=fifo"},
	{"lead", "100us", "fastpath", "--lead=100us"},
	{"cores", "1-3,6", "fastpath", "--cores=1-3,6"},
	{"reservedCores", "0", "fastpath", "--reserved-cores=0"},
	{"chargeGranularity", "50us", "fastpath", "--charge-granularity=50us"},
	{"runQueueLatency", true, "fastpath", "--run-queue-latency=true"},
	{"stateDir", "/var/lib/other", "fastpath", "--state-dir=/var/lib/other/fastpath"},
	{"stateDir", "/var/lib/other", "agent", "--state-dir=/var/lib/other/agent"},
	{"escalationReservePpm", 150000, "agent", "--escalation-reserve-ppm=150000"},
	{"heartbeat", "3s", "agent", "--heartbeat=3s"},
	{"pressure", object{"busyPercent": 80}, "agent", "--busy-percent=80"},
	{"pressure", object{"busyAfter": "7s"}, "agent", "--busy-after=7s"},
	{"pressure", object{"calmAfter": "8s"}, "agent", "--calm-after=8s"},
	{"port", 9443, "agent", "--port=9443"},
	{"certificateSecret", "tls", "agent", "--cert-dir=/etc/mainspring/tls"},
	{"kubeletDir", "/data/kubelet", "agent", "--kubelet-dir=/data/kubelet"},
	{"cdiDir", "/etc/cdi", "agent", "--cdi-dir=/etc/cdi"},
	{"nriSocket", "", "agent", "--nri-socket="},
	{"checkpoint", object{"enabled": true}, "agent", "--checkpoint=true"},
	{"checkpoint", object{"enabled": true}, "agent", "--checkpoint-host=$(POD_IP)"},
	{"checkpoint", object{"enabled": true, "port": 9091}, "agent", "--checkpoint-port=9091"},
	{"checkpoint", object{"enabled": true, "bytesPerSecond": 10485760}, "agent", "--checkpoint-rate=10485760"},
	{"checkpoint", object{"enabled": true, "maxBytes": 10485760}, "agent", "--checkpoint-max-bytes=10485760"},
	{"checkpoint", object{"enabled": true, "quotaBytes": 104857600}, "agent", "--checkpoint-quota=104857600"},
	{"checkpoint", object{"enabled": true, "keepFreeBytes": 0}, "agent", "--checkpoint-keep-free=0"},
	{"checkpoint", object{"enabled": true, "keepFreePercent": 25}, "agent", "--checkpoint-keep-free-percent=25"},
	{"checkpoint", object{"enabled": true, "kubeletPort": 10350}, "agent", "--kubelet-endpoint=$(HOST_IP):10350"},
	{"checkpoint", object{"enabled": true, "kubeletCAConfigMap": "kubelets"}, "agent", "--kubelet-ca=/etc/mainspring/kubelet/ca.crt"},
	{"checkpoint", object{"enabled": true, "containerdSocket": "/run/k3s/containerd/containerd.sock"}, "agent", "--containerd-socket=/run/k3s/containerd/containerd.sock"},
	{"checkpoint", object{"enabled": true, "containerdSnapshotter": "native"}, "agent", "--containerd-snapshotter=native"},
}

// fixedFlags are given by the chart itself, or are not for a pod.
var fixedFlags = map[string][]string{
	"fastpath": {"socket", "root", "priority", "samples", "probe"},
	"agent":    {"node-name", "kubeconfig", "fastpath-socket", "host-root", "host", "dns-names", "cert-service", "memory-limit-mib", "v", "criu"},
}

func TestAgentsMayHaveAnSELinuxContext(t *testing.T) {
	if got := daemonSet(t, object{}).Spec.Template.Spec.SecurityContext.SELinuxOptions; got != nil {
		t.Errorf("by default it is %+v", got)
	}
	got := daemonSet(t, object{"seLinuxOptions": object{"type": "spc_t"}}).Spec.Template.Spec.SecurityContext.SELinuxOptions
	if got == nil || got.Type != "spc_t" {
		t.Errorf("got %+v; want type spc_t", got)
	}
}

func TestAgentValuesSetFlags(t *testing.T) {
	for _, tc := range agentFlags {
		if got := containerNamed(t, daemonSet(t, object{tc.path: tc.value}), tc.container).Args; !slices.Contains(got, tc.want) {
			t.Errorf("argument %q is missing from %q", tc.want, got)
		}
	}
}

// What the chart gives the programs they must take, and what they take must be in the chart or on the list above.
func TestAgentFlagsAreTheBinaries(t *testing.T) {
	for _, program := range []string{"fastpath", "agent"} {
		binary, err := build(program)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := exec.CommandContext(t.Context(), binary, "--help").CombinedOutput() // the exit status of help varies
		var flags []string
		for _, match := range regexp.MustCompile(`(?m)^  -([a-z-]+)`).FindAllStringSubmatch(string(out), -1) {
			flags = append(flags, match[1])
		}
		known := slices.Clone(fixedFlags[program])
		for _, tc := range agentFlags {
			if tc.container == program {
				known = append(known, flagName(tc.want))
			}
		}
		for _, flag := range flags {
			if !slices.Contains(known, flag) {
				t.Errorf("no value of the chart sets --%s of %s", flag, program)
			}
		}
		for _, argument := range containerNamed(t, daemonSet(t, object{"certificateSecret": "tls"}), program).Args {
			if !slices.Contains(flags, flagName(argument)) {
				t.Errorf("%s has no flag for %q: %s", program, argument, out)
			}
		}
	}
}

func TestAgentsAreSelected(t *testing.T) {
	manifests := template(t, object{"agent": object{"enabled": true, "hostPort": true}, "serviceMonitor": object{"enabled": true, "agentTLSConfig": object{"serverName": "agents.example.com"}}})
	d := decode[appsv1.DaemonSet](t, manifests, "DaemonSet", "mainspring-agent")
	own := labels.Set(d.Spec.Template.Labels)
	service := decode[corev1.Service](t, manifests, "Service", "mainspring-agent")
	policy := decode[networkingv1.NetworkPolicy](t, manifests, "NetworkPolicy", "mainspring-agent")
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(own) || !selects(t, &policy.Spec.PodSelector, own) || !selects(t, d.Spec.Selector, own) {
		t.Error("Service, NetworkPolicy and DaemonSet do not select the pods")
	}
	if selects(t, &policy.Spec.PodSelector, deployment(t, nil).Spec.Template.Labels) || labels.SelectorFromSet(decode[corev1.Service](t, manifests, "Service", "mainspring").Spec.Selector).Matches(own) {
		t.Error("controller and agents are selected together")
	}
	if d.Spec.Template.Spec.NodeSelector["mckube.io/realtime"] != "true" || containerNamed(t, d, "agent").Ports[0].HostPort != 8080 {
		t.Errorf("nodes %v, ports %v", d.Spec.Template.Spec.NodeSelector, containerNamed(t, d, "agent").Ports)
	}
	if len(manifests.OfKind("ServiceMonitor")) != 2 {
		t.Error("the agents have no ServiceMonitor")
	}
}

// Nothing of the agent is there unless it is switched on: it has rights on nodes that not everybody wants to give.
func TestAgentIsOptional(t *testing.T) {
	for _, m := range template(t, nil) {
		if strings.HasPrefix(m.GetName(), "mainspring-agent") {
			t.Errorf("%s %s is there", m.GetKind(), m.GetName())
		}
	}
	for _, m := range template(t, agentValues(object{"restrictToOwnNode": false})).OfKind("ValidatingAdmissionPolicy") {
		// They keep agents from Leases of kubelets, and from other signers, whatever the node.
		if strings.HasPrefix(m.GetName(), "mainspring-agent") && m.GetName() != "mainspring-agent-leases" && m.GetName() != "mainspring-agent-signingrequests" {
			t.Errorf("policy %s is there", m.GetName())
		}
	}
}
