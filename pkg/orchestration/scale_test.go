package orchestration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

const crowdRunning = 50

// crowd is a queue with so many actions that wait for the 50 that run, each for a pod of its own, on 50 nodes. As in a
// controller, what is read comes from a cache, unless it must not.
type crowd struct {
	*stage
	waiting  int
	queue    *orchestration.Queue
	client   client.Client
	reader   client.Reader
	requests []orchestration.Request
	// asked and written are how often the API server was.
	lock           sync.Mutex
	asked, written int
	// patience is how long the queue would have waited for the list of all actions.
	patience time.Duration
}

func newCrowd(t testing.TB, waiting int) *crowd {
	c := &crowd{stage: newStage(t), waiting: waiting}
	c.api = apiserver.Client(t, apiserver.Scheme(t)) // the queue writes through a cache of its own
	c.options = orchestration.Options{NodeLimit: waiting, NamespaceLimit: waiting, ClusterLimit: crowdRunning}
	c.connect()
	c.populate()
	c.queue = c.start("crowd")
	c.each(len(c.requests), func(i int) error {
		_, err := c.queue.Submit(t.Context(), c.requests[i])
		return err
	})
	return c
}

// connect to the API server through a cache, and past it.
func (c *crowd) connect() {
	c.Helper()
	config, known := apiserver.Config(c), apiserver.Scheme(c)
	near, err := cache.New(config, cache.Options{Scheme: known})
	c.must(err)
	for _, o := range []client.Object{&corev1.Pod{}, &corev1.Node{}, &v1alpha1.RTAction{}} {
		_, err := near.GetInformer(c.Context(), o, cache.BlockUntilSynced(false))
		c.must(err)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- near.Start(ctx) }()
	c.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	})
	near.WaitForCacheSync(c.Context())
	cached, err := client.NewWithWatch(config, client.Options{Scheme: known, Cache: &client.CacheOptions{Reader: near}})
	c.must(err)
	c.client, c.reader = c.counted(cached, false), c.counted(c.api, true)
}

// counted requests; reads only where they are not from a cache.
func (c *crowd) counted(api client.WithWatch, reads bool) client.WithWatch {
	count := func(n *int) {
		c.lock.Lock()
		defer c.lock.Unlock()
		*n++
	}
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if reads {
				count(&c.asked)
			}
			return api.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if reads {
				count(&c.asked)
			}
			if _, ok := list.(*v1alpha1.RTActionList); ok {
				deadline, _ := ctx.Deadline()
				c.patience = time.Until(deadline)
			}
			return api.List(ctx, list, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			count(&c.written)
			return api.SubResource(sub).Update(ctx, o, opts...)
		},
	})
}

// start a queue that knows what is stored.
func (c *crowd) start(identity string) *orchestration.Queue {
	c.Helper()
	q, err := orchestration.New(orchestration.Dependencies{
		Clock: c.clock, Client: c.client, Reader: c.reader, Recorder: silence{}, Nodes: c.nodes,
		Lease: client.ObjectKey{Namespace: "default", Name: "queue"}, Identity: identity, Options: c.options,
	})
	c.must(err)
	for _, kind := range rules.Kinds {
		q.Handle(kind, patient{})
	}
	c.must(decide(c, q))
	return q
}

func decide(t testing.TB, q *orchestration.Queue) error {
	_, err := q.Loops()[0].Reconcile(t.Context(), reconcile.Request{})
	return err
}

// silence drops Events.
type silence struct{}

func (silence) Publish(...events.Event) {}

// patient does nothing, for ever.
type patient struct{}

func (patient) Step(context.Context, orchestration.Task) (rules.Result, error) {
	return rules.Result{}, nil
}

// populate makes the nodes and pods.
func (c *crowd) populate() {
	c.Helper()
	for i := range crowdRunning {
		c.node(fmt.Sprintf("n%02d", i))
	}
	c.budget("web", "x", 1)
	c.requests = make([]orchestration.Request, c.waiting+crowdRunning)
	c.each(len(c.requests), func(i int) error {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}}}
		p.Namespace, p.Name, p.Labels = c.namespace, fmt.Sprintf("pod-%04d", i), map[string]string{"app": "p"}
		if err := c.api.Create(c.Context(), p); err != nil {
			return err
		}
		r := c.request(rules.Preempt, "NoCore", fmt.Sprintf("n%02d", i%crowdRunning), v1alpha1.ActionPod{Namespace: p.Namespace, Name: p.Name, UID: p.UID})
		r.Cause = fmt.Sprintf("cause/%d", i)
		c.requests[i] = r
		return nil
	})
}

// each does something for every number below n, a few at a time.
func (c *crowd) each(n int, do func(i int) error) {
	c.Helper()
	var group sync.WaitGroup
	errs := make(chan error, n)
	slots := make(chan struct{}, 8)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			errs <- do(i)
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		c.must(err)
	}
}

// settle goes through the queue until nothing changes.
func (c *crowd) settle() {
	c.Helper()
	for before := -1; before != c.written; {
		before = c.written
		c.must(decide(c, c.queue))
	}
}

// phases are how many actions are in each, as stored, and what they wait for.
func (c *crowd) phases() map[string]int {
	out := map[string]int{}
	for _, o := range c.actions() {
		out[strings.TrimSpace(string(o.Status.Phase)+" "+o.Status.WaitingFor)]++
	}
	return out
}

func TestACrowdWaitsForItsTurn(t *testing.T) {
	c := newCrowd(t, orchestration.NotesAtOnce+orchestration.NotesAtOnce/4) // so that more than one round has notes to store
	c.must(decide(c, c.queue))
	if got := c.phases(); got["Running"] != crowdRunning || got["Waiting InUse"] != orchestration.NotesAtOnce {
		t.Errorf("after one round: %v", got)
	}
	c.settle()
	if got := c.phases(); got["Running"] != crowdRunning || got["Waiting InUse"] != c.waiting {
		t.Fatalf("got %v", got)
	}
	if c.patience < 2*time.Minute { // each is written, a few hundred in a second at best
		t.Errorf("taking over must be done within %s", c.patience)
	}
	t.Run("a round asks the API server for the Lease and for what budgets allow, whatever the length of the queue", func(t *testing.T) {
		c.clock.Step(time.Minute / 2)
		asked, written := c.asked, c.written
		c.must(decide(c, c.queue))
		if asked, written = c.asked-asked, c.written-written; asked > 2 || written > 0 {
			t.Errorf("asked %d times, wrote %d times", asked, written)
		}
	})
	t.Run("who asks for an action or its holder does not go through all", func(t *testing.T) {
		last := c.requests[len(c.requests)-1]
		for what, do := range map[string]func(){
			"HoldsNode": func() { c.queue.HoldsNode("none") }, "HoldsPod": func() { c.queue.HoldsPod("none") },
			"Running": func() { c.queue.Running(rules.Migrate) }, "ForCause": func() { _, _ = c.queue.ForCause("none") },
			"Find": func() { c.queue.Find(last) }, "Submit": func() { _, _ = c.queue.Submit(t.Context(), last) },
		} {
			if got := testing.AllocsPerRun(10, do); got > 200 {
				t.Errorf("%s allocates %.0f times", what, got)
			}
		}
	})
}

// BenchmarkCrowd measures what 2,000 actions that wait beside 50 that run cost on a real API server: a round of the
// dispatcher, asking again for an action, asking which action has a node, and taking over from another controller.
func BenchmarkCrowd(b *testing.B) {
	c := newCrowd(b, 2_000)
	c.settle()
	run := func(what string, do func() error) {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("round", func() error { return decide(c, c.queue) })
	run("submit", func() error {
		_, err := c.queue.Submit(c.Context(), c.requests[7])
		return err
	})
	run("holds", func() error {
		c.queue.HoldsPod(types.UID("none"))
		c.queue.HoldsNode("none")
		return nil
	})
	run("takeover", func() error {
		c.start(fmt.Sprintf("process-%d", c.asked))
		return nil
	})
}
