package drain_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// stubborn is an API server that lets nobody abort the migrations of one pod.
type stubborn struct {
	client.Client
	pod string
}

func (c stubborn) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.PatchOption) error {
	if m, ok := o.(*v1alpha1.PodMigration); ok && strings.HasPrefix(m.Name, c.pod+"-") {
		return errors.New("not this one")
	}
	return c.Client.Patch(ctx, o, p, options...)
}

// One that cannot be aborted keeps nobody from waiting for the end of the others, and the node is told of all the same.
func TestAnAbortThatFailsLeavesTheOthersToTheirEnd(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"cache", "db", "web"} {
		s.pod(name, "ReplicaSet")
	}
	ctx, interrupt := context.WithCancel(t.Context())
	s.act = func(int) {
		if strings.Contains(s.out.String(), "web is to migrate") {
			interrupt()
		}
	}
	d := s.drain()
	d.Client = stubborn{Client: d.Client, pod: "db"}
	err := d.Run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v\n%s", err, s.out.String())
	}
	for _, want := range []string{"stays cordoned (kubectl uncordon " + s.node + ")", "/db-", "not this one; it goes on"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	s.expect("migrations", s.migrations(), "cache:Drain:Aborted db:Drain: web:Drain:Aborted")
	for _, name := range []string{"cache", "web"} {
		if want := "pod " + s.namespace + "/" + name + ": Aborted"; !strings.Contains(s.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, s.out.String())
		}
	}
}
