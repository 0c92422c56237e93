package environment

import (
	"fmt"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	"github.com/mainspring-rt/mainspring/pkg/chart"
)

// ElectionFlags let replicas of the controller agree on a leader.
func ElectionFlags() []string {
	return []string{"--disable-leader-election=false", "--leader-election-namespace=" + controllerNamespace}
}

// ExpectRestart ends the controller and starts it again. It then has forgotten which Events it has made:
// Karpenter repeats none of a kind about an object within two minutes, even when it has something else
// to say.
func (env *Environment) ExpectRestart() {
	GinkgoHelper()
	Expect(env.Controller.Stop()).To(Succeed())
	Expect(env.Controller.Start(env, env.Controller.Flags()...)).To(Succeed())
}

// ExpectReplica starts one more controller with the flags of the first, on ports and with a log of
// its own. In suites with webhooks it serves them too. It ends with the spec.
func (env *Environment) ExpectReplica() *Program {
	GinkgoHelper()
	replica, err := newProgram(env, env.Controller.binary, env.Controller.kubeconfig, env.dir)
	Expect(err).NotTo(HaveOccurred())
	replica.logPath = filepath.Join(env.dir, fmt.Sprintf("controller-%d.log", replica.health))
	flags := env.Controller.Flags()
	if env.realtime() {
		flags = chart.Override(flags, env.webhookPort())
	}
	Expect(replica.Start(env, flags...)).To(Succeed())
	DeferCleanup(func() {
		replica.Kill9()
		Expect(replica.troubleSince(0)).To(BeEmpty())
	})
	return replica
}

// MetricOf is Metric of one controller among several.
func (env *Environment) MetricOf(g Gomega, c *Program, name string, labels map[string]string) float64 {
	families, err := env.scraper.scrape(env, c.metrics)
	g.Expect(err).NotTo(HaveOccurred())
	return sum(families[name], labels)
}

// Leads tells whether the controller is the leader among its replicas, as its metrics say.
func (env *Environment) Leads(g Gomega, c *Program) bool {
	return env.MetricOf(g, c, "leader_election_master_status", nil) == 1
}
