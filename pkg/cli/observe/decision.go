package observe

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/cli/text"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// Kind sorts decisions for colours and counts.
type Kind string

// The kinds of decisions.
const (
	Opened  Kind = "open"    // a machine was ordered
	Planned Kind = "plan"    // a change was found worth while
	Joined  Kind = "joined"  // a machine became usable
	Closing Kind = "close"   // a machine will leave; its pods fit elsewhere or it has none
	Replace Kind = "replace" // a machine will leave and is replaced
	Gone    Kind = "gone"    // a machine has left
	Placed  Kind = "core"    // a container got a core, or another one
	Budget  Kind = "budget"  // a container's budget was raised or given back
	Blocked Kind = "wait"    // something is wanted and may not happen now
	Trouble Kind = "trouble" // something went wrong
)

// Decision is one thing that was decided, or that happened, in words for a user.
type Decision struct {
	At    time.Time
	Kind  Kind
	Node  string // the machine's short name, "" when none is concerned
	Pool  string
	Text  string
	Count int // how often the same was told
}

// openedWords says what was ordered and for what.
func openedWords(n Node, c *claim) string {
	words := "opened " + describeType(n)
	if need := needWords(c.Spec.Resources.Requests); need != "" {
		words += " for " + need
	}
	return words
}

func describeType(n Node) string {
	words := []string{n.Type}
	if n.CapacityType != "" {
		words = append(words, n.CapacityType)
	}
	if n.Zone != "" {
		words = append(words, n.Zone)
	}
	if n.Price > 0 {
		words = append(words, fmt.Sprintf("at $%.3f/h", n.Price))
	}
	return strings.Join(words, " ")
}

func needWords(r corev1.ResourceList) string {
	var words []string
	if pods := r.Pods().Value(); pods > 0 {
		words = append(words, text.Plural(int(pods), "pod"))
	}
	if c := cores(r); c > 0 {
		words = append(words, fmt.Sprintf("%.3g CPU", c))
	}
	if g := gib(r); g > 0 {
		words = append(words, fmt.Sprintf("%.3g GiB", g))
	}
	if g := powermodel.Devices(r, powermodel.GPU); g > 0 {
		words = append(words, fmt.Sprintf("%.3g GPU", g))
	}
	return strings.Join(words, ", ")
}

// leavingWords says why a machine leaves.
func leavingWords(n Node, c *claim) (Kind, string) {
	switch why := leavingBecause(c); why {
	case "Empty":
		return Closing, "closing: no pod needs it any more (empty)"
	case "Underutilized":
		return Closing, fmt.Sprintf("closing: its %s fit elsewhere for less (consolidation of %s)", text.Plural(n.Pods, "pod"), describeType(n))
	case "Drifted":
		return Replace, "replacing: it no longer is what its NodePool asks for" + driftWords(c)
	case "Unhealthy":
		return Replace, "replacing: the node is unhealthy and did not recover in its time"
	case "Expired":
		return Replace, fmt.Sprintf("draining: older than expireAfter %s", c.Spec.ExpireAfter)
	case "Interrupted":
		return Replace, "draining: the cloud takes this spot machine back"
	case "Deleted":
		return Closing, "draining: its NodeClaim was deleted"
	default:
		return Replace, "replacing: " + why
	}
}

func driftWords(c *claim) string {
	if reason := c.reason(conditionDrifted); reason != "" {
		return " (" + reason + ")"
	}
	return ""
}
