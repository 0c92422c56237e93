package lifecycle_test

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"github.com/mainspring-rt/mainspring/pkg/cli/replay"
)

// The demo may take three times as long as on an idle machine.
const (
	demoLimit = 17 * time.Minute
	// commandTimeout is beyond what the commands allow themselves.
	commandTimeout = 20 * time.Minute
)

var _ = Describe("The command line", func() {
	It("tells the demo's story to its end, every goal reached", SpecPriority(10), func() {
		out := GinkgoT().TempDir()
		session := mainspring("demo", "--plain", "--limit", demoLimit.String(), "--report", out)
		Eventually(session, commandTimeout).Should(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("10 of 10 chapters reached their goal"))
		Expect(filepath.Join(out, "index.html")).To(BeARegularFile())
	})

	It("replays a recorded workload and accounts for each of its pods", SpecPriority(10), func() {
		out, recorded := GinkgoT().TempDir(), filepath.Join("..", "..", "..", "pkg", "cli", "trace", "testdata")
		session := mainspring("replay", "--plain", "--speed", "300", "--report", out,
			"--pods", filepath.Join(recorded, "pods.csv"), "--nodes", filepath.Join(recorded, "nodes.csv"))
		Eventually(session, commandTimeout).Should(gexec.Exit(0))
		raw, err := os.ReadFile(filepath.Join(out, "replay.json"))
		Expect(err).NotTo(HaveOccurred())
		var figures replay.Summary
		Expect(json.Unmarshal(raw, &figures)).To(Succeed())
		GinkgoWriter.Println(string(raw))
		expectAccounted(figures, rows(filepath.Join(recorded, "pods.csv")))
	})
})

// expectAccounted checks that each recorded pod is in the figures exactly once: pods that fit no allowed machine are not
// created, every other is, and has started or is listed as never started.
func expectAccounted(figures replay.Summary, recorded int) {
	GinkgoHelper()
	started, never, misfits := figures.Run.Started, len(figures.Run.NeverStarted), len(figures.Fit.Misfits)
	Expect(figures.Input.Selected).To(Equal(recorded))
	Expect(figures.Run.Created + misfits).To(Equal(recorded))
	Expect(started + never).To(Equal(figures.Run.Created))
	Expect(started).To(Equal(figures.Run.Finished + figures.Run.StillRunning))
	Expect(started).To(BeNumerically(">", 0))
	Expect(figures.Wait.Running.Count).To(Equal(started))
	Expect(figures.Wait.Running.Without).To(Equal(never))
	Expect(figures.Wait.Running.Of).To(Equal(figures.Run.Created))
	Expect(figures.Spent.Dollars).To(BeNumerically(">", 0))
	Expect(figures.Spent.KWh).To(BeNumerically(">", 0))
}

// rows counts the lines of a CSV file below its head.
func rows(path string) int {
	GinkgoHelper()
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	all, err := csv.NewReader(file).ReadAll()
	Expect(err).NotTo(HaveOccurred())
	return len(all) - 1
}

// mainspring runs the command line of this checkout, against a control plane of its own.
func mainspring(args ...string) *gexec.Session {
	GinkgoHelper()
	binary, err := gexec.Build("github.com/mainspring-rt/mainspring/cmd/mainspring")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gexec.CleanupBuildArtifacts)
	session, err := gexec.Start(exec.Command(binary, args...), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Terminate().Wait(time.Minute) })
	return session
}
