package environment

import (
	"net"
	"path/filepath"
	"strconv"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/process"
)

const (
	metricsServerName      = "metrics-server"
	metricsServerNamespace = metav1.NamespaceSystem
)

// ExpectMetricsServer starts a metrics-server that asks the kubelets of real nodes, with the rights that its own manifests give it, and
// returns a client of what it serves. Both end with the spec. No API server aggregates it: requests go to it itself, which knows who asks
// by the cluster's authority.
func (env *Environment) ExpectMetricsServer() client.Client {
	GinkgoHelper()
	for _, o := range metricsServerRights() {
		env.ExpectApplied(o)
	}
	kubeconfig, err := env.Plane.KubeconfigFor(env, metricsServerNamespace, metricsServerName)
	Expect(err).NotTo(HaveOccurred())
	loopback := net.IPv4(127, 0, 0, 1)
	identity, err := env.Plane.NodeIdentity(metricsServerName, loopback) // for its certificate
	Expect(err).NotTo(HaveOccurred())
	ports, err := process.FreePorts(env, 1)
	Expect(err).NotTo(HaveOccurred())
	port := strconv.Itoa(ports[0])
	child, err := process.Start(process.Command{
		Name: metricsServerName, Path: env.metricsServer, Log: filepath.Join(env.dir, metricsServerName+".log"),
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + loopback.String(), "--secure-port=" + port, "--tls-cert-file=" + identity.Cert, "--tls-private-key-file=" + identity.Key,
			"--kubelet-certificate-authority=" + identity.CA, "--kubelet-preferred-address-types=InternalIP", "--kubelet-use-node-status-port",
			"--metric-resolution=10s", "--kubelet-request-timeout=5s", // it takes no less, and no longer
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			AddReportEntry(metricsServerName, child.Tail())
		}
		Expect(child.Stop(stopTimeout)).To(Succeed())
	})
	address := net.JoinHostPort(loopback.String(), port)
	Eventually(func(g Gomega) {
		if !child.Running() {
			StopTrying(child.Died().Error()).Now()
		}
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(env, "tcp", address)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conn.Close()).To(Succeed())
	}).Should(Succeed())
	config := rest.CopyConfig(env.Plane.RESTConfig())
	config.Host = "https://" + address
	served, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	return served
}

// metricsServerRights are those of its manifests.
func metricsServerRights() []client.Object {
	named := metav1.ObjectMeta{Name: metricsServerName}
	inSystem := metav1.ObjectMeta{Namespace: metricsServerNamespace, Name: metricsServerName}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metricsServerNamespace, Name: metricsServerName}}
	role := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: inSystem},
		&rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list", "watch"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named, RoleRef: role("ClusterRole", metricsServerName), Subjects: subjects},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: metricsServerName + ":system:auth-delegator"}, RoleRef: role("ClusterRole", "system:auth-delegator"), Subjects: subjects},
		&rbacv1.RoleBinding{ObjectMeta: inSystem, RoleRef: role("Role", "extension-apiserver-authentication-reader"), Subjects: subjects},
	}
}
