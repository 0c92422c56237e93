package node_test

import (
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// account makes a ServiceAccount until the scenario ends, and returns a token of it with which it may change something.
func account(name string) string {
	GinkgoHelper()
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	Expect(env.Client.Create(env, made)).To(Succeed())
	DeferCleanup(func() { _ = env.Client.Delete(env, made) })
	return env.TokenOf("default", name, frontdoor.Audience)
}

// setRT is what MC-Kube's programs send.
func setRT(id string, period, runtime int64, core string) string {
	return fmt.Sprintf(`{"container_id":%q,"period":%d,"runtime":%d,"core":%q}`, id, period, runtime, core)
}

var _ = Describe("POST /set-rt of a real node's agent", Serial, func() {
	BeforeEach(func() { env.NodeAgent.ExpectRunning() })

	It("sets in the kernel what the container was admitted with, for whom the cluster lets, and nothing else", func() {
		m, p := promised("by-hand"), loaded("by-hand")
		group := governed(m, p)
		expectKept(p, "app", group)
		plain := governedNothing("not-real-time")
		may, mayNot := account(environment.SetterName), account("stranger")
		id, core := containerID(p, "app"), cores(group)
		post := func(token, body string) (int, string) {
			return env.NodeAgent.Call(http.MethodPost, "/set-rt", token, body)
		}
		for _, c := range []struct {
			what, token, body string
			code              int
			say               string
		}{
			{"nobody's token", "nonsense", setRT(id, period, high, core), http.StatusUnauthorized, "none of this cluster"},
			{"one for the API server", env.TokenOf("default", environment.SetterName), setRT(id, period, high, core), http.StatusUnauthorized, "not for audience"},
			{"one without the right", mayNot, setRT(id, period, high, core), http.StatusForbidden, "stranger may not post /set-rt"},
			{"no container", may, setRT("", period, high, core), http.StatusBadRequest, "empty"},
			{"a part of an ID", may, setRT(id[:30], period, high, core), http.StatusBadRequest, "64 hexadecimal digits"},
			{"a container of no node", may, setRT(strings.Repeat("f", 64), period, high, core), http.StatusNotFound, "no real-time container of this node"},
			{"a container that is not real-time", may, setRT(plain[strings.LastIndex(plain, "/")+1:], period, high, core), http.StatusNotFound, "no real-time container"},
			{"more than was admitted", may, setRT(id, period, high+1, core), http.StatusConflict, "12000 to 24000"},
			{"another period", may, setRT(id, 2*period, high, core), http.StatusConflict, "admitted with 100000"},
			{"a core that was not given", may, setRT(id, period, high, "0"), http.StatusConflict, "admitted on core"},
			{"more than any number", may, fmt.Sprintf(`{"container_id":%q,"period":%d,"runtime":99999999999999999999}`, id, period), http.StatusBadRequest, "runtime"},
		} {
			code, text := post(c.token, c.body)
			Expect(code).To(Equal(c.code), "%s: %s", c.what, text)
			Expect(text).To(ContainSubstring(c.say), c.what)
			Expect(budget(group)).To(Equal(int64(low)), "after %s", c.what)
		}

		for range 3 { // what is repeated is the same again
			code, text := post(may, setRT(id, period, high, core))
			Expect(code).To(Equal(http.StatusOK), text)
			Expect(text).To(ContainSubstring(`"runtime":24000`))
			Expect(budget(group)).To(Equal(int64(high)), "it is in force when it is answered")
		}
		Expect(budget(plain)).To(BeZero())
		eventuallyLevel(m, "hi")
		Expect(realtimeThreads(group)).To(HaveLen(1))

		code, text := post(may, setRT(strings.TrimPrefix(id, "containerd://"), period, low, ""))
		Expect(code).To(Equal(http.StatusOK), text)
		eventuallyBudget(group, low)
		eventuallyLevel(m, "low")
		env.EventuallyFalse(m, mcoperatorv1.ConditionEscalated, "", "")

		By("telling what is in force on the status endpoint, for whom the cluster lets")
		reader, stranger := env.TokenOf("default", environment.SetterName), env.TokenOf("default", "stranger")
		code, text = env.NodeAgent.Call(http.MethodGet, "/status", reader, "")
		Expect(code).To(Equal(http.StatusOK))
		Expect(text).To(And(ContainSubstring(`"backend":"rtgroup"`), ContainSubstring(string(p.UID))))
		code, _ = env.NodeAgent.Call(http.MethodGet, "/status", stranger, "")
		Expect(code).To(Equal(http.StatusForbidden))
		code, _ = env.NodeAgent.Call(http.MethodGet, "/metrics", stranger, "")
		Expect(code).To(Equal(http.StatusForbidden))

		By("showing Prometheus a certificate that the controller has signed")
		env.NodeAgent.ExpectSignedCertificate()
	})
})
