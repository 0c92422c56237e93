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

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
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
//   - no pod, and no container on its node, is moved twice for one cause, but back.
func Broken(h history.History) []string {
	c := &checker{cores: map[string]map[int32]core{}, told: map[string]bool{}, done: map[*mckubev1alpha1.RTNode]bool{}, moved: map[moved]string{}}
	h.Walk(c.visit)
	return c.list
}

// core is what a device tells about the logical CPU it stands for.
type core struct{ capacity, reserve int64 }

type checker struct {
	cores map[string]map[int32]core // by node; kept when the slice goes before the node's servers do
	done  map[*mckubev1alpha1.RTNode]bool
	moved map[moved]string // the action that moved it
	told  map[string]bool
	list  []string
}

func (c *checker) visit(s history.State) {
	for _, slice := range s.Slices {
		c.learn(slice)
	}
	for _, name := range slices.Sorted(maps.Keys(s.RTNodes)) {
		if n := s.RTNodes[name]; !c.done[n] {
			c.done[n] = true
			c.servers(s, n)
			c.budgets(s.Revision, n)
		}
	}
	c.once(s)
	c.claims(s)
	c.preemptions(s)
	c.actions(s)
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

// once expects each server on one node only.
func (c *checker) once(s history.State) {
	where := map[server]string{}
	for _, name := range slices.Sorted(maps.Keys(s.RTNodes)) {
		for _, srv := range s.RTNodes[name].Spec.Servers {
			key := server{srv.PodUID, srv.Container}
			if other, ok := where[key]; ok {
				c.tell(s.Revision, "%s/%s is a server of node %s and of node %s", srv.Pod, srv.Container, other, name)
			}
			where[key] = name
		}
	}
}
