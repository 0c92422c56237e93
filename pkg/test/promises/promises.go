// Package promises reads from the record of a scenario whether real-time admission kept its promises
// at every moment: on every version of every object, not on samples.
//
// What a core can hold is computed here from the papers and the wire formats alone, without package rt:
// a fault there must not be able to hide itself here.
package promises

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// Granularity is what admission charges beyond each budget, in microseconds: the controller's default.
const Granularity = 100

// Broken lists every promise that a version of some object breaks, each once, in the order of the
// writes:
//
//   - the servers of a core pass test T1, or T1k with one window where they are admitted by it;
//   - a server is on exactly one core of one node, and the core exists there;
//   - the server's pod runs on that node;
//   - the budgets that an agent has put in force on a core add up to no more than its capacity;
//   - the claims allocated on a core add up to no more than its capacity;
//   - a victim of preemption is strictly less critical than every pod it gives way to, and goes by the
//     Eviction API;
//   - no pod or node is that of two actions that run, but for nodes where they only move pods, and no limit
//     is exceeded;
//   - nobody is moved twice for one cause, be it to another core, off its node or with it, but back: no container to another core
//     twice, and no pod any of whose containers was; only the replacement of a node may have a further cause for the same pressure.
func Broken(h history.History) []string {
	c := newChecker()
	h.Walk(c.visit)
	return c.list
}

// core is what a device tells about the logical CPU it stands for.
type core struct{ capacity, reserve int64 }

type checker struct {
	cores map[string]map[int32]core // by node; kept when the slice goes before the node's servers do
	moved map[moved][]move          // how it was moved
	// displaced are the pods that ran on a node when its replacement began, and those that a preemption has evicted, by the action.
	displaced map[string]map[types.UID]bool
	homes     map[server]string    // the node of each server
	pods      map[types.UID]string // the node of each pod
	told      map[string]bool
	list      []string
}

func newChecker() *checker {
	return &checker{
		cores: map[string]map[int32]core{}, moved: map[moved][]move{}, displaced: map[string]map[types.UID]bool{}, homes: map[server]string{}, pods: map[types.UID]string{}, told: map[string]bool{},
	}
}

// visit checks what a write may have broken: with thousands of pods, to look at everything after each write would take hours.
func (c *checker) visit(s history.State) {
	switch o := s.Write.Object.(type) {
	case nil:
		c.everything(s)
	case *resourcev1.ResourceSlice:
		c.learn(o)
		c.claims(s)
	case *resourcev1.ResourceClaim:
		c.claims(s)
	case *corev1.Pod:
		c.pod(s, o)
	case *mckubev1alpha1.RTNode:
		c.node(s, o)
	case *mcoperatorv1.McKube:
		c.preemptions(s)
		c.actions(s)
	case *mckubev1alpha1.RTAction:
		c.actions(s)
	}
}

// everything checks the state at the beginning.
func (c *checker) everything(s history.State) {
	for _, slice := range s.Slices {
		c.learn(slice)
	}
	for _, pod := range s.Pods {
		c.pods[pod.UID] = pod.Spec.NodeName
	}
	for _, name := range slices.Sorted(maps.Keys(s.RTNodes)) {
		c.node(s, s.RTNodes[name])
	}
	c.claims(s)
	c.preemptions(s)
	c.actions(s)
}

// pod checks a version of a pod.
func (c *checker) pod(s history.State, pod *corev1.Pod) {
	c.pods[pod.UID] = pod.Spec.NodeName
	if s.Write.Type == watch.Deleted {
		delete(c.pods, pod.UID)
	}
	c.preemptions(s)
	c.actions(s)
}

// node checks a version of an RTNode.
func (c *checker) node(s history.State, n *mckubev1alpha1.RTNode) {
	maps.DeleteFunc(c.homes, func(_ server, home string) bool { return home == n.Name })
	if s.Write.Type == watch.Deleted {
		return
	}
	c.servers(s, n)
	c.budgets(s.Revision, n)
	for _, srv := range n.Spec.Servers {
		key := server{srv.PodUID, srv.Container}
		if other, ok := c.homes[key]; ok {
			c.tell(s.Revision, "%s/%s is a server of node %s and of node %s", srv.Pod, srv.Container, min(other, n.Name), max(other, n.Name))
		}
		c.homes[key] = n.Name
	}
}

// tell puts a broken promise on the list once, with the revision that broke it first.
func (c *checker) tell(revision uint64, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if !c.told[what] {
		c.told[what] = true
		c.list = append(c.list, fmt.Sprintf("revision %d: %s", revision, what))
	}
}

func (c *checker) learn(slice *resourcev1.ResourceSlice) {
	if slice.Spec.Driver != mckubev1alpha1.DriverCPU || slice.Spec.NodeName == nil {
		return
	}
	cores := map[int32]core{}
	for _, device := range slice.Spec.Devices {
		capacity := device.Capacity[mckubev1alpha1.CapacityRTBandwidth].Value
		cores[int32(integer(device, mckubev1alpha1.AttributeCoreID))] = core{
			capacity: capacity.Value(), reserve: integer(device, mckubev1alpha1.AttributeEscalationReserve),
		}
	}
	c.cores[*slice.Spec.NodeName] = cores
}

func integer(device resourcev1.Device, attribute resourcev1.QualifiedName) int64 {
	if value := device.Attributes[attribute].IntValue; value != nil {
		return *value
	}
	return 0
}

// server names a container.
type server struct {
	pod       types.UID
	container string
}
