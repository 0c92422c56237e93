package localplane

import (
	"embed"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// component is one program of the plane: how it is started and asked whether it is ready.
type component struct {
	tool toolchain.Tool
	args []string
	// ready is the URL that answers 200 when the component is.
	ready string
}

// The stages are the behaviour of simulated kubelets, in kwok's Stage API.
//
//go:embed stages/*.yaml
var stages embed.FS

func etcdComponent(f files, p ports) component {
	return component{
		tool:  toolchain.Etcd,
		ready: url(p.etcdHTTP) + "/health",
		args: []string{
			"--name=default",
			"--data-dir=" + f.data(),
			"--unsafe-no-fsync", // a plane's data need not survive a crash of the machine
			// Its database is written once a second instead of ten times. After a crash it reads what is missing from its log.
			"--backend-batch-interval=1s",
			"--log-level=warn",
			"--listen-client-urls=" + url(p.etcdClient),
			// On a port that serves HTTP as well, gRPC runs on net/http, which takes half as much CPU time again.
			"--listen-client-http-urls=" + url(p.etcdHTTP),
			"--advertise-client-urls=" + url(p.etcdClient),
			"--listen-peer-urls=" + url(p.etcdPeer),
			"--initial-advertise-peer-urls=" + url(p.etcdPeer),
			"--initial-cluster=default=" + url(p.etcdPeer),
			"--force-new-cluster=" + strconv.FormatBool(exists(f.data())), // ports change between starts
			"--client-cert-auth",
			"--trusted-ca-file=" + f.pki("etcd-ca.crt"),
			"--cert-file=" + f.pki("etcd.crt"),
			"--key-file=" + f.pki("etcd.key"),
			"--peer-client-cert-auth",
			"--peer-trusted-ca-file=" + f.pki("etcd-ca.crt"),
			"--peer-cert-file=" + f.pki("etcd.crt"),
			"--peer-key-file=" + f.pki("etcd.key"),
		},
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func apiServerComponent(f files, p ports, extra []string) component {
	return component{
		tool:  toolchain.KubeAPIServer,
		ready: url(p.apiServer) + "/readyz",
		args: append([]string{
			"--etcd-servers=" + url(p.etcdClient),
			"--etcd-cafile=" + f.pki("etcd-ca.crt"),
			"--etcd-certfile=" + f.pki("etcd-client.crt"),
			"--etcd-keyfile=" + f.pki("etcd-client.key"),
			"--secure-port=" + strconv.Itoa(p.apiServer),
			"--bind-address=" + loopback,
			"--advertise-address=" + loopback,
			"--endpoint-reconciler-type=none", // an endpoint on loopback is refused
			"--service-cluster-ip-range=" + serviceRange,
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--shutdown-watch-termination-grace-period=1s", // or watches keep it from ending for a minute
			"--client-ca-file=" + f.pki("ca.crt"),
			"--token-auth-file=" + f.pki(tokensFile),
			"--tls-cert-file=" + f.pki("serving.crt"),
			"--tls-private-key-file=" + f.pki("serving.key"),
			"--kubelet-client-certificate=" + f.pki("kubelet-client.crt"),
			"--kubelet-client-key=" + f.pki("kubelet-client.key"),
			"--kubelet-certificate-authority=" + f.pki("ca.crt"),
			"--kubelet-preferred-address-types=InternalIP,Hostname",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + f.pki("tokens.crt"),
			"--service-account-signing-key-file=" + f.pki("tokens.key"),
		}, extra...),
	}
}

// controllerManagerComponent lets clients ask faster than by default and looks at Nodes every
// second: durations get shorter, decisions stay the same.
func controllerManagerComponent(f files, p ports, grace time.Duration, extra []string) component {
	kubeconfig := f.kubeconfig(controllerManagerUser)
	return component{
		tool:  toolchain.KubeControllerManager,
		ready: url(p.controllerManager) + "/healthz",
		args: append([]string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + loopback,
			"--secure-port=" + strconv.Itoa(p.controllerManager),
			"--tls-cert-file=" + f.pki("serving.crt"),
			"--tls-private-key-file=" + f.pki("serving.key"),
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + f.pki("tokens.key"),
			"--root-ca-file=" + f.pki("ca.crt"),
			"--cluster-signing-cert-file=" + f.pki("ca.crt"),
			"--cluster-signing-key-file=" + f.pki("ca.key"),
			"--node-monitor-period=1s",
			"--node-monitor-grace-period=" + grace.String(),
			"--kube-api-qps=400",
			"--kube-api-burst=800",
		}, extra...),
	}
}

func schedulerComponent(f files, p ports) component {
	kubeconfig := f.kubeconfig(schedulerUser)
	return component{
		tool:  toolchain.KubeScheduler,
		ready: url(p.scheduler) + "/readyz",
		args: []string{
			"--config=" + f.config("scheduler.yaml"),
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + loopback,
			"--secure-port=" + strconv.Itoa(p.scheduler),
			"--tls-cert-file=" + f.pki("serving.crt"),
			"--tls-private-key-file=" + f.pki("serving.key"),
		},
	}
}

// schedulerConfig lets the scheduler write as fast as it decides, and retry sooner.
func schedulerConfig(kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 1000, burst: 2000}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
`, kubeconfig)
}

// kwokComponent manages Nodes by label, not by annotation: kwok v0.8 filters annotations itself
// and does not notice that one was removed, while the API server tells it that a Node has left
// its label selector, and its lease is no longer renewed.
func kwokComponent(f files, p ports, grace time.Duration) component {
	lease := min(grace, defaultGracePeriod)
	return component{
		tool:  toolchain.Kwok,
		ready: "http://" + address(p.kwok) + "/readyz",
		args: []string{
			"--kubeconfig=" + f.kubeconfig(kwokUser),
			"--config=" + f.config("kwok.yaml"),
			"--manage-all-nodes=false",
			"--manage-nodes-with-label-selector=" + NodeLabel + "=" + NodeLabelValue,
			"--node-lease-duration-seconds=" + strconv.Itoa(int(lease/time.Second)),
			"--node-ip=" + simulatedNodeIP,
			"--cidr=" + simulatedPodRange,
			"--server-address=" + address(p.kwok),
		},
	}
}

// NodeLabel and NodeLabelValue mark the Nodes whose kubelet is simulated. Removing the label
// stops the kubelet: no lease, no status, no pod started or ended.
const (
	NodeLabel      = "kwok.x-k8s.io/node"
	NodeLabelValue = "fake"
)

const (
	simulatedNodeIP   = "10.0.0.1"
	simulatedPodRange = "10.128.0.0/9"
)

// kwokConfig is kwok's own configuration, with enough workers for thousands of pods, followed
// by the stages.
func kwokConfig() (string, error) {
	config := `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 8
  nodeLeaseParallelism: 8
  podsOnNodeSyncParallelism: 4
  enableDebuggingHandlers: false
`
	for _, name := range []string{"stages/node.yaml", "stages/pod.yaml"} {
		content, err := stages.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("reading the embedded stages: %w", err)
		}
		config += "---\n" + string(content)
	}
	return config, nil
}
