package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/move"
	"github.com/mainspring-rt/mainspring/pkg/cli/text"
)

// Drain empties one node.
type Drain struct {
	Client client.Client
	Clock  clock.Clock
	Out    io.Writer
	Node   string
	Allow  Allow
	// Strategy of the migrations; empty: the controller chooses.
	Strategy v1alpha1.MigrationStrategy
	// EvictRefused has pods of McKubes evicted, too, whose migration came to nothing. Others are in any case.
	EvictRefused bool
	// Every is how often it looks.
	Every time.Duration
	// Farewell is how long aborted migrations may take to end before they are left to themselves.
	Farewell time.Duration

	tasks []*task
	// looks is how often pods were looked for since the node was cordoned, seen are those that were found.
	looks int
	seen  map[types.UID]bool
}

// gathers is how often pods that come to the cordoned node are taken on: those that the scheduler was about to place there, and those that tolerate it. More are left,
// as whoever makes such pods may make them again and again.
const gathers = 2

// Plan writes what would be done, and changes nothing. The error says what stands against it.
func (d *Drain) Plan(ctx context.Context) error {
	list, err := d.plan(ctx)
	for _, i := range list {
		fmt.Fprintf(d.Out, "pod %s %s%s\n", name(i.pod), i.way, because(i.why))
	}
	return err
}

// Run cordons the node, and has its pods leave it. When the context ends, what has not cut over is aborted; the node stays
// cordoned.
func (d *Drain) Run(ctx context.Context) error {
	if _, err := d.plan(ctx); err != nil {
		return err
	}
	if err := d.cordon(ctx); err != nil {
		return err
	}
	for failures := 0; ; {
		done, err := d.step(ctx)
		failures++
		switch {
		case ctx.Err() != nil:
			return d.leave(ctx)
		case err != nil && failures == move.Patience:
			return err
		case err != nil:
			fmt.Fprintf(d.Out, "%s  trying again: %v\n", d.Clock.Now().Format(time.TimeOnly), err)
		case done:
			return d.finish()
		default:
			failures = 0
		}
		select {
		case <-ctx.Done():
			return d.leave(ctx)
		case <-d.Clock.After(d.Every):
		}
	}
}

// plan is what would be done with the pods of the node; an error where one would be lost that nobody gave up.
func (d *Drain) plan(ctx context.Context) ([]item, error) {
	if _, err := d.node(ctx); err != nil {
		return nil, err
	}
	list, err := d.list(ctx)
	if err != nil {
		return nil, err
	}
	var against []string
	for _, i := range list {
		if i.way == blocks {
			against = append(against, fmt.Sprintf("pod %s: %s", name(i.pod), i.why))
		}
	}
	if len(against) > 0 {
		return list, fmt.Errorf("node %s is left as it is: %s", d.Node, strings.Join(against, "; "))
	}
	return list, nil
}

// list says what is to be done with each pod that is on the node now.
func (d *Drain) list(ctx context.Context) ([]item, error) {
	pods, mckubes, err := read(ctx, d.Client, d.Node)
	if err != nil {
		return nil, err
	}
	return plan(pods, mckubes, d.Allow)
}

// gather takes on the pods that are on the cordoned node and were not there when it was last looked at; found when there are any to be brought on. What would be lost
// stays, and so does what comes again and again.
func (d *Drain) gather(ctx context.Context) (found bool, err error) {
	list, err := d.list(ctx)
	if err != nil {
		return false, err
	}
	if d.seen == nil {
		d.seen = map[types.UID]bool{}
	}
	for _, i := range list {
		if d.seen[i.pod.UID] {
			continue
		}
		d.seen[i.pod.UID] = true
		t := &task{item: i}
		switch {
		case i.way == stays:
			d.say(i.pod, "stays: "+i.why)
			continue
		case i.way == blocks:
			t.over, t.failed = true, "it has come meanwhile: "+i.why
		case d.looks >= gathers:
			t.over, t.failed = true, "it has come although the node is cordoned"
		default:
			found = true
		}
		d.tasks = append(d.tasks, t)
	}
	d.looks++
	return found, nil
}

// node reads the node.
func (d *Drain) node(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node := &corev1.Node{}
	switch err := d.Client.Get(ctx, types.NamespacedName{Name: d.Node}, node); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("node %s not found", d.Node)
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", d.Node, err)
	}
	return node, nil
}

// cordon keeps new pods off the node.
func (d *Drain) cordon(ctx context.Context) error {
	node, err := d.node(ctx)
	if err != nil {
		return err
	}
	if node.Spec.Unschedulable {
		fmt.Fprintf(d.Out, "node %s is cordoned already\n", d.Node)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	if err := d.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: d.Node}}, patch); err != nil {
		return fmt.Errorf("cordoning node %s: %w", d.Node, err)
	}
	fmt.Fprintf(d.Out, "node %s is cordoned\n", d.Node)
	return nil
}

// step brings every pod a step on, and looks for more once none is under way; done when there are none.
func (d *Drain) step(ctx context.Context) (done bool, err error) {
	under := false
	for _, t := range d.tasks {
		if t.over {
			continue
		}
		if err := d.advance(ctx, t); err != nil {
			return false, err
		}
		under = under || !t.over
	}
	if under {
		return false, nil
	}
	found, err := d.gather(ctx)
	return err == nil && !found, err
}

// finish says what became of the node.
func (d *Drain) finish() error {
	moved, evicted := 0, 0
	var left []string
	for _, t := range d.tasks {
		switch {
		case t.failed != "":
			left = append(left, fmt.Sprintf("pod %s: %s", name(t.pod), t.failed))
		case t.moved:
			moved++
		default:
			evicted++
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("node %s is not drained, and stays cordoned: %s", d.Node, strings.Join(left, "; "))
	}
	fmt.Fprintf(d.Out, "node %s is drained: %s moved, %d evicted\n", d.Node, text.Plural(moved, "pod"), evicted)
	return nil
}

// leave aborts the migrations that the drain has asked for and that are not over, and waits for the end of each that could be. What could not
// goes on by itself, and is told.
func (d *Drain) leave(ctx context.Context) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.Farewell)
	defer cancel()
	errs := []error{context.Cause(ctx)}
	var waiting []types.NamespacedName
	for _, t := range d.tasks {
		if t.over || !t.mine || t.way != migrates {
			continue
		}
		d.say(t.pod, "aborting its migration")
		if err := move.Abort(last, d.Client, t.migration); err != nil {
			errs = append(errs, fmt.Errorf("%w; it goes on", err))
			continue
		}
		waiting = append(waiting, t.migration)
	}
	for _, migration := range waiting {
		follower := move.Follower{Client: d.Client, Clock: d.Clock, Out: io.Discard, Every: d.Every, Farewell: d.Farewell}
		m, err := follower.Wait(last, migration)
		if err != nil {
			errs = append(errs, fmt.Errorf("waiting for the end of PodMigration %s, which goes on by itself: %w", migration, err))
			continue
		}
		fmt.Fprintln(d.Out, move.Summary(m))
	}
	return fmt.Errorf("node %s is not drained, and stays cordoned (kubectl uncordon %s): %w", d.Node, d.Node, errors.Join(errs...))
}

// say tells what happens to a pod.
func (d *Drain) say(p *corev1.Pod, what string) {
	fmt.Fprintf(d.Out, "%s  pod %s %s\n", d.Clock.Now().Format(time.TimeOnly), name(p), what)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
