package environment

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	"k8s.io/apimachinery/pkg/types"
)

// auditPolicy has the API server write down each deletion of a pod by one of our programs. An eviction is
// none: it is the creation of an Eviction, which PodDisruptionBudgets may refuse.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:%s"]
    verbs: [delete, deletecollection]
    resources: [{group: "", resources: [pods]}]
  - level: None
`

// audit is the API server's record of deletions.
type audit struct {
	path  string
	start int64 // where the spec begins in it
}

// newAudit prepares a record in dir and returns the API server's arguments for it.
func newAudit(dir string) (*audit, []string) {
	GinkgoHelper()
	policy := filepath.Join(dir, "audit-policy.yaml")
	Expect(os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, chartNamespace), 0o600)).To(Succeed())
	a := &audit{path: filepath.Join(dir, "audit.log")}
	Expect(os.WriteFile(a.path, nil, 0o600)).To(Succeed())
	return a, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + a.path, "--audit-log-mode=blocking"}
}

// begin makes the spec begin here.
func (a *audit) begin() { a.start += int64(len(a.deletions())) }

// others are the entries since the spec began but those of certain pods.
func (a *audit) others(spared map[types.NamespacedName]bool) string {
	GinkgoHelper()
	var out strings.Builder
	for line := range strings.Lines(a.deletions()) {
		var entry struct {
			Object struct{ Namespace, Name string } `json:"objectRef"`
		}
		Expect(json.Unmarshal([]byte(line), &entry)).To(Succeed())
		if !spared[types.NamespacedName{Namespace: entry.Object.Namespace, Name: entry.Object.Name}] {
			out.WriteString(line)
		}
	}
	return out.String()
}

// deletions are the entries since the spec began.
func (a *audit) deletions() string {
	GinkgoHelper()
	file, err := os.Open(a.path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	_, err = file.Seek(a.start, io.SeekStart)
	Expect(err).NotTo(HaveOccurred())
	entries, err := io.ReadAll(file)
	Expect(err).NotTo(HaveOccurred())
	return string(entries)
}
