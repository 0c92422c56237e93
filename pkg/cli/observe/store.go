package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// store is the latest of everything that is watched, and what changed on the way.
type store struct {
	mu      sync.Mutex
	claims  map[string]*claim
	nodes   map[string]*corev1.Node
	pods    map[types.UID]*corev1.Pod
	rtNodes map[string]*v1alpha1.RTNode
	mckubes map[types.NamespacedName]McKube
	told    map[string]told // by claim: what the journal already says of it
	peak    map[string]int
	ledger  map[string]*Machine // by claim; never forgotten
	journal *journal
}

// told is how far a claim's story has been told.
type told struct{ opened, joined, leaving, unready bool }

func newStore() *store {
	return &store{
		claims: map[string]*claim{}, nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{},
		rtNodes: map[string]*v1alpha1.RTNode{}, mckubes: map[types.NamespacedName]McKube{},
		told: map[string]told{}, peak: map[string]int{}, ledger: map[string]*Machine{}, journal: newJournal(),
	}
}

func (s *store) setClaim(c *claim, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[c.Name] = c
	s.tell(c, now)
	s.raisePeak()
}

func (s *store) dropClaim(name string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.claims[name]
	if !ok {
		return
	}
	n := nodeOf(c, s.nodes[c.Status.NodeName])
	delete(s.claims, name)
	delete(s.told, name)
	if m, ok := s.ledger[name]; ok {
		m.Gone = now
	}
	text := fmt.Sprintf("gone after %s of life", rounded(now.Sub(n.Created)))
	s.journal.add(Decision{At: now, Kind: Gone, Node: n.Claim, Pool: n.Pool, Text: text, Count: 1})
}

func (s *store) setNode(n *corev1.Node, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[n.Name] = n
	for _, c := range s.claims {
		if c.Status.NodeName == n.Name {
			s.tell(c, now)
		}
	}
	s.raisePeak()
}

func (s *store) dropNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

func (s *store) setPod(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p.UID] = p
}

func (s *store) dropPod(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

func (s *store) setRTNode(n *v1alpha1.RTNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rtNodes[n.Name] = n
}

func (s *store) dropRTNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rtNodes, name)
}

func (s *store) setMcKube(m McKube) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mckubes[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = m
}

func (s *store) dropMcKube(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mckubes, name)
}

func (s *store) addEvent(e *corev1.Event) {
	d, ok := fromEvent(e)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, found := s.find(d.Node); found {
		d.Node, d.Pool = n.Claim, n.Pool
	}
	s.journal.add(d)
}

// tell adds to the journal what is new in a claim's story.
func (s *store) tell(c *claim, now time.Time) {
	n := nodeOf(c, s.nodes[c.Status.NodeName])
	s.note(n)
	n.Pods = s.podsOn(n.Name)
	done := s.told[c.Name]
	say := func(already *bool, when bool, kind Kind, text func() string) {
		if when && !*already {
			*already = true
			s.journal.add(Decision{At: now, Kind: kind, Node: n.Claim, Pool: n.Pool, Text: text(), Count: 1})
		}
	}
	say(&done.opened, c.is(conditionLaunched), Opened, func() string { return openedWords(n, c) })
	say(&done.joined, n.Phase == Ready, Joined, func() string { return "joined after " + rounded(now.Sub(n.Created)).String() })
	if n.Phase != NotReady {
		done.unready = false
	}
	say(&done.unready, n.Phase == NotReady, Trouble, func() string { return "the node is not ready: " + n.Why })
	if n.Phase == Leaving && n.Why != "" {
		kind, text := leavingWords(n, c)
		say(&done.leaving, true, kind, func() string { return text })
	}
	s.told[c.Name] = done
}

func (s *store) podsOn(node string) int {
	count := 0
	for _, p := range s.pods {
		if p.Spec.NodeName == node && !finished(p) && !daemon(p) {
			count++
		}
	}
	return count
}

func (s *store) find(name string) (Node, bool) {
	if c, ok := s.claims[name]; ok {
		return nodeOf(c, s.nodes[c.Status.NodeName]), true
	}
	for _, c := range s.claims {
		if c.Status.NodeName == name && name != "" {
			return nodeOf(c, s.nodes[name]), true
		}
	}
	return Node{}, false
}

// machines joins claims and nodes.
func (s *store) machines() []Node {
	nodes := make([]Node, 0, len(s.claims))
	for _, c := range s.claims {
		nodes = append(nodes, nodeOf(c, s.nodes[c.Status.NodeName]))
	}
	return nodes
}

func (s *store) raisePeak() {
	for pool, count := range Disrupted(s.machines()) {
		s.peak[pool] = max(s.peak[pool], count)
	}
}

func (s *store) resetPeaks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peak = map[string]int{}
	s.raisePeak()
}

// state joins everything into one view.
func (s *store) state(now time.Time) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{At: now, Nodes: s.machines(), PeakDisrupted: maps.Clone(s.peak)}
	at := make(map[string]int, len(out.Nodes))
	for i, n := range out.Nodes {
		at[n.Name] = i
		out.Nodes[i].Cores, out.Nodes[i].Pressure = coresOf(s.rtNodes[n.Name]), pressed(s.rtNodes[n.Name])
	}
	for _, m := range s.mckubes {
		out.McKubes = append(out.McKubes, m)
	}
	slices.SortFunc(out.McKubes, func(a, b McKube) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range s.pods {
		if finished(p) {
			continue
		}
		if i, ok := at[p.Spec.NodeName]; ok && p.Spec.NodeName != "" {
			out.Nodes[i].add(p)
		}
		if p.DeletionTimestamp == nil && !daemon(p) {
			out.addPod(p)
		}
	}
	for i, n := range out.Nodes {
		out.Nodes[i].DeviceLoad = powermodel.DeviceLoad(n.requested, n.allocatable)
	}
	order(out.Nodes)
	return out
}

func (n *Node) add(p *corev1.Pod) {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	n.CPU.Requested += cores(requests)
	n.MemoryGiB.Requested += gib(requests)
	n.GPU.Requested += powermodel.Devices(requests, powermodel.GPU)
	addTo(n.requested, requests)
	if !daemon(p) {
		n.Pods++
	}
}

func (s *State) addPod(p *corev1.Pod) {
	running := p.Status.Phase == corev1.PodRunning
	if running {
		s.Running++
	} else {
		s.Pending++
	}
	pod := Pod{Namespace: p.Namespace, Name: p.Name, App: p.Labels["app"], Node: p.Spec.NodeName, Running: running}
	if p.Status.StartTime != nil {
		pod.Started = p.Status.StartTime.Time
	}
	s.Pods = append(s.Pods, pod)
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func daemon(p *corev1.Pod) bool {
	return len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Kind == "DaemonSet"
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Second) }
