package realtime_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/access"
)

// reporter is a program that reports overruns to the controller, as MC-Kube's do.
type reporter struct{ url, token string }

// takesOverruns restarts the controller with POST /overrun, until the scenario ends.
func takesOverruns() reporter {
	GinkgoHelper()
	ports, err := process.FreePorts(env, 1)
	Expect(err).NotTo(HaveOccurred())
	// What the chart adds with overrun.enabled: the controller's right, and a caller with the right to the path.
	allow("takes-overruns", rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:mainspring-system"},
		rbacv1.PolicyRule{APIGroups: []string{"mckube.io"}, Resources: []string{"rtnodes"}, Verbs: []string{"get", "patch"}})
	caller := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reporter", Namespace: "default"}}
	Expect(env.Client.Create(env, caller)).To(Succeed())
	DeferCleanup(func() { _ = env.Client.Delete(env, caller) })
	allow("reports-overruns", rbacv1.Subject{Kind: "ServiceAccount", Name: "reporter", Namespace: "default"},
		rbacv1.PolicyRule{NonResourceURLs: []string{"/overrun"}, Verbs: []string{"post"}})
	flags := env.Controller.Flags()
	Expect(env.Controller.Stop()).To(Succeed())
	DeferCleanup(func() {
		Expect(env.Controller.Stop()).To(Succeed())
		Expect(env.Controller.Start(env, flags...)).To(Succeed())
	})
	more := append(append([]string{}, flags...), fmt.Sprintf("--overrun-port=%d", ports[0]), "--overrun-host=127.0.0.1")
	Expect(env.Controller.Start(env, more...)).To(Succeed())
	return reporter{url: fmt.Sprintf("https://127.0.0.1:%d/overrun", ports[0]), token: env.TokenOf("default", "reporter", frontdoor.Audience)}
}

func allow(name string, who rbacv1.Subject, what rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: name}
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{what}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{who}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}},
	} {
		Expect(env.Client.Create(env, o)).To(Succeed())
		DeferCleanup(func() { _ = env.Client.Delete(env, o) })
	}
	Expect(access.Await(env, env.Plane.RESTConfig(), "", who, what)).To(Succeed())
}

// report says that a container overran, and returns the answer.
func (r reporter) report(token, node, container string, timestamp int64) (int, string) {
	GinkgoHelper()
	body := fmt.Sprintf(`{"node_name":%q,"container_id":%q,"timestamp":%d}`, node, container, timestamp)
	request, err := http.NewRequestWithContext(env, http.MethodPost, r.url, bytes.NewReader([]byte(body)))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	request.Close = true
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // its certificate is made in memory here; pkg/frontdoor tests it
	response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(text)
}

// named gives the pod's container an ID, which simulated kubelets leave out.
func named(pod, id string) {
	GinkgoHelper()
	Eventually(func() error {
		p := &corev1.Pod{}
		if err := env.Client.Get(env, client.ObjectKey{Namespace: "default", Name: pod}, p); err != nil {
			return err
		}
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].ContainerID = "containerd://" + id
		}
		return env.Client.Status().Update(env, p)
	}).Should(Succeed())
}

var _ = Describe("Overruns that others report", func() {
	It("raise exactly the container that they name, for a while, and only for whom the cluster lets", func() {
		env.ExpectApplied(twoCores())
		control := test.McKube("control", 20, test.Critical(high), test.MayRiseTo(40), test.RecoversAfter(recovery))
		other := test.McKube("other", 20, test.Critical(high), test.MayRiseTo(40), test.RecoversAfter(recovery))
		place, beside := governed(control), governed(other)
		eventuallyAt(control, "low")
		r := takesOverruns()
		id, unknown := strings.Repeat("a", 64), strings.Repeat("f", 64)
		named("control", id)
		named("other", strings.Repeat("b", 64))

		code, _ := r.report("nonsense", place.Node, id, 1)
		Expect(code).To(Equal(http.StatusUnauthorized))
		code, _ = r.report(env.TokenOf("default", "default", frontdoor.Audience), place.Node, id, 1)
		Expect(code).To(Equal(http.StatusForbidden))
		code, text := r.report(r.token, place.Node, "", 1)
		Expect(code).To(Equal(http.StatusBadRequest), text)
		code, text = r.report(r.token, place.Node, unknown, 1)
		Expect(code).To(Equal(http.StatusNotFound), text)

		Eventually(func() string { // until the controller's cache has the ID
			_, text := r.report(r.token, place.Node, id, 1)
			return text
		}).Should(ContainSubstring("accepted"))
		eventuallyAt(control, "hi")
		Expect(control.Status.LastOverrunTime).NotTo(BeNil())
		_, text = r.report(r.token, place.Node, id, 1)
		Expect(text).To(ContainSubstring("duplicate"))
		eventuallyAt(control, "low")
		_, text = r.report(r.token, place.Node, id, 1)
		Expect(text).To(ContainSubstring("duplicate"), "a replay raises nobody")
		Expect(levels(env.History(), place.Pod.UID)).To(Equal([]string{"low", "hi", "low"}))
		Expect(levels(env.History(), beside.Pod.UID)).To(Equal([]string{"low"}))
	})
})
