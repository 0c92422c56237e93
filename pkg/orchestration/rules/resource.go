package rules

import "fmt"

// Resource is a kind of thing that actions use.
type Resource string

// The resources. Pods and nodes are held, the others are counted.
const (
	// Pod is named by its UID. Its capacity is 1.
	Pod Resource = "Pod"
	// Node is named by its name. Its capacity is how many actions may share it.
	Node Resource = "Node"
	// Namespace is named by its name. Its capacity is how many of its pods may be on the move at once.
	Namespace Resource = "Namespace"
	// Cluster has no name. Its capacity is how many actions may run at once.
	Cluster Resource = "Cluster"
	// PodBudget is a PodDisruptionBudget, named namespace/name. Its capacity is what it still allows.
	PodBudget Resource = "PodBudget"
	// PoolBudget is the disruption budget of a NodePool, named by it. Its capacity is what it still allows.
	PoolBudget Resource = "PoolBudget"
)

// budget tells whether the world gives and takes it.
func (r Resource) budget() bool { return r == PodBudget || r == PoolBudget }

// Key names something that actions use.
type Key struct {
	Resource Resource
	Name     string
}

// String is "Node node-1", or "Cluster".
func (k Key) String() string {
	if k.Name == "" {
		return string(k.Resource)
	}
	return string(k.Resource) + " " + k.Name
}

// Use is how much an action uses of something.
type Use struct {
	Key
	// Amount of its capacity; 0: All.
	Amount int
}

// All of it: no other action may use any.
const All = 0

func (u Use) validate() error {
	switch {
	case u.Amount < 0:
		return fmt.Errorf("amount: %d is negative; 0 is all of it", u.Amount)
	case (u.Name == "") != (u.Resource == Cluster):
		return fmt.Errorf("name: %q does not name a %s", u.Name, u.Resource)
	}
	switch u.Resource {
	case Pod, Node, Namespace, Cluster, PodBudget, PoolBudget:
		return nil
	}
	return fmt.Errorf("resource: %q is not one of Pod, Node, Namespace, Cluster, PodBudget, PoolBudget", u.Resource)
}

// account is what is used of each resource, and by which actions.
type account map[Key]usage

type usage struct {
	amount int
	all    bool
	by     []string
}

// take books what an action uses.
func (a account) take(action Action) {
	for _, u := range action.Uses {
		entry := a[u.Key]
		entry.amount += u.Amount
		entry.all = entry.all || u.Amount == All
		entry.by = append(entry.by, action.ID)
		a[u.Key] = entry
	}
}

// has tells whether the use fits beside what is booked.
func (a account) has(u Use, capacity int) bool {
	entry := a[u.Key]
	if u.Amount == All {
		return capacity > 0 && len(entry.by) == 0
	}
	return !entry.all && entry.amount+u.Amount <= capacity
}
