package lifecycle_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// written returns the path of a new file with the content.
func written(content string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "input.yaml")
	Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return path
}

// closedPort is where nothing listens.
func closedPort() string {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer l.Close()
	return l.Addr().String()
}

const kubeconfigOf = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`

// expectOneLine starts a controller that cannot work and expects it to end with the code and one
// line on stderr that contains all of the words.
func expectOneLine(code int, kubeconfig string, flags []string, words ...string) {
	GinkgoHelper()
	outcome := env.ControllerOutcome(kubeconfig, append([]string{"--disable-leader-election=true"}, flags...)...)
	Expect(outcome.Code).To(Equal(code), "exit code, with %s", outcome.Stderr)
	Expect(outcome.Stderr).To(MatchRegexp(`^mainspring-controller: [^\n]+\n$`), "one line")
	for _, word := range words {
		Expect(outcome.Stderr).To(ContainSubstring(word))
	}
}

var _ = Describe("A start that cannot succeed", func() {
	It("is refused for a flag that does not exist", func() {
		expectOneLine(2, env.Plane.Kubeconfig(), []string{"--metrics-prot=1"}, "metrics-prot", "--help")
	})

	It("is refused for a value that a flag cannot have", func() {
		expectOneLine(2, env.Plane.Kubeconfig(), []string{"--batch-max-duration=soon"}, "batch-max-duration", "soon")
	})

	It("is refused for a kubeconfig that is not there", func() {
		expectOneLine(2, "/nowhere/kubeconfig", nil, "/nowhere/kubeconfig", "no such file")
	})

	It("is refused for a kubeconfig that is none", func() {
		file := written("clusters: {")
		expectOneLine(2, file, nil, file)
	})

	It("is refused for a catalogue that is not there", func() {
		expectOneLine(2, env.Plane.Kubeconfig(), []string{"--catalogue-file=/nowhere/catalogue.yaml"}, "/nowhere/catalogue.yaml", "no such file")
	})

	It("is refused for a catalogue with a wrong value, which it names", func() {
		file := written("zones: [z]\ninstanceTypes:\n- {name: broken, cpu: many}\n")
		expectOneLine(2, env.Plane.Kubeconfig(), []string{"--catalogue-file=" + file}, file, "cpu")
	})

	It("names the API server that does not answer", func() {
		address := closedPort()
		expectOneLine(1, written(fmt.Sprintf(kubeconfigOf, address)), nil, address)
	})

	It("names the definitions that the cluster lacks, and what installs them", func() {
		expectOneLine(1, env.ExpectBarePlane().Kubeconfig(), nil, "mainspring-crds",
			"nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "kwoknodeclasses.karpenter.kwok.sh", "simulatedfaults.mckube.io")
	})
})

var _ = Describe("A start", func() {
	It("can be broken off as soon as it says that it is ready, again and again", func() {
		for range 5 {
			env.ExpectRestart() // which expects exit code 0
		}
	})
})
