package resourcepressure

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// Annotations of the PodMigrations that the loop makes: what later decisions need to know of them.
const (
	// AnnotationSourceNode is the node that the pod leaves.
	AnnotationSourceNode = v1alpha1.Group + "/source-node"
	// AnnotationWorkload is the workload that it belongs to.
	AnnotationWorkload = v1alpha1.Group + "/workload"
	// AnnotationAmount is what it uses: cores and bytes.
	AnnotationAmount = v1alpha1.Group + "/amount"
	// AnnotationDecided is when it was decided, by the clock that later decisions are made by.
	AnnotationDecided = v1alpha1.Group + "/decided"
)

// history is what PodMigrations tell about moves, past and under way.
type history struct {
	list []*v1alpha1.PodMigration
	now  time.Time
	o    Options
}

// moving tells whether a migration of the pod is under way.
func (h history) moving(uid types.UID, namespace, name string) bool {
	for _, m := range h.list {
		same := m.Namespace == namespace && m.Spec.PodName == name && (m.Spec.PodUID == "" || m.Spec.PodUID == uid)
		if same && !m.Spec.DryRun && !m.Status.Phase.Over() {
			return true
		}
	}
	return false
}

// resting tells whether a pod of the workload was moved, or was to be, within the cooldown, which is longer after one that has failed.
func (h history) resting(workload string) bool {
	for _, m := range h.list {
		rest := h.o.WorkloadCooldown
		if m.Status.Phase == v1alpha1.MigrationFailed {
			rest = max(rest, keptSeconds*time.Second)
		}
		if own(m) && m.Annotations[AnnotationWorkload] == workload && h.age(m) < rest {
			return true
		}
	}
	return false
}

// apart tells whether a pod went from one of two nodes to the other within the cooldown, but not in this interval, in which
// several may go together.
func (h history) apart(a, b string, interval time.Duration) bool {
	for _, m := range h.list {
		from, to := ends(m)
		age := h.age(m)
		fresh := from == a && to == b && age < interval // of the same batch
		if own(m) && (from == a && to == b || from == b && to == a) && !fresh && age < h.o.PairCooldown && m.Status.Phase != v1alpha1.MigrationRefused {
			return true
		}
	}
	return false
}

// left is how many pods were told to leave a node within an interval.
func (h history) left(node string, interval time.Duration) int {
	n := 0
	for _, m := range h.list {
		if from, _ := ends(m); own(m) && from == node && h.age(m) < interval {
			n++
		}
	}
	return n
}

// age is how long ago the move was decided.
func (h history) age(m *v1alpha1.PodMigration) time.Duration {
	at, err := time.Parse(time.RFC3339Nano, m.Annotations[AnnotationDecided])
	if err != nil {
		at = m.CreationTimestamp.Time
	}
	return h.now.Sub(at)
}

// next is the name of the next PodMigration for a pod: those of its earlier attempts are taken.
func (h history) next(p *corev1.Pod, node string, begun time.Time) string {
	taken := map[string]bool{}
	for _, m := range h.list {
		if m.Namespace == p.Namespace {
			taken[m.Name] = true
		}
	}
	for attempt := 0; ; attempt++ {
		if name := nameOf(p.UID, node, begun, attempt); !taken[name] {
			return name
		}
	}
}

// own tells whether the loop has made it.
func own(m *v1alpha1.PodMigration) bool {
	return m.Spec.Trigger == v1alpha1.TriggerResourcePressure && m.Annotations[AnnotationSourceNode] != "" && !m.Spec.DryRun
}

// ends are the nodes that a migration leads from and to.
func ends(m *v1alpha1.PodMigration) (from, to string) {
	from, to = m.Annotations[AnnotationSourceNode], m.Spec.TargetNode
	if s := m.Status.Source; s != nil && s.Node != "" {
		from = s.Node
	}
	if t := m.Status.Target; t != nil && t.Node != "" {
		to = t.Node
	}
	return from, to
}

// move is an amount on its way from one node to another.
type move struct {
	from, to string
	amount   usage.Amount
}

// underway are the moves that a reading of that time does not show yet. amounts finds what a pod uses.
func (h history) underway(read time.Time, amounts func(*v1alpha1.PodMigration) usage.Amount) []move {
	var out []move
	for _, m := range h.list {
		ended := m.Status.CompletionTime
		unseen := ended != nil && ended.After(read) && (m.Status.Phase == v1alpha1.MigrationSucceeded || m.Status.Phase == v1alpha1.MigrationSucceededWithoutState)
		if m.Spec.DryRun || m.Status.Phase.Over() && !unseen {
			continue
		}
		from, to := ends(m)
		out = append(out, move{from: from, to: to, amount: amounts(m)})
	}
	return out
}

// nameOf is the name of the PodMigration that moves a pod for a pressure. It follows from what was decided, so who decides
// the same again makes nothing twice.
func nameOf(uid types.UID, node string, begun time.Time, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d", uid, node, begun.Unix(), attempt))
	return "pressure-" + hex.EncodeToString(sum[:8])
}

// encode writes an amount into an annotation; decode reads it, nothing from what is not one.
func encode(a usage.Amount) string {
	return strconv.FormatFloat(a.CPU, 'g', 6, 64) + "," + strconv.FormatFloat(a.Memory, 'f', 0, 64)
}

func decode(text string) (usage.Amount, bool) {
	cores, bytes, ok := strings.Cut(text, ",")
	cpu, errCPU := strconv.ParseFloat(cores, 64)
	memory, errMemory := strconv.ParseFloat(bytes, 64)
	if !ok || errCPU != nil || errMemory != nil || !(cpu >= 0) || !(memory >= 0) {
		return usage.Amount{}, false
	}
	return usage.Amount{CPU: cpu, Memory: memory}, true
}

// workloadOf names the workload of a pod: its controller, or the Deployment behind a ReplicaSet; of an ownerless pod itself.
func workloadOf(p *corev1.Pod) string {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return p.Namespace + "/Pod/" + p.Name
	}
	if hash := p.Labels["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" {
		if name, ok := strings.CutSuffix(owner.Name, "-"+hash); ok {
			return p.Namespace + "/Deployment/" + name
		}
	}
	return p.Namespace + "/" + owner.Kind + "/" + owner.Name
}
