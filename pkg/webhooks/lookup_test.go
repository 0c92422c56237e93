package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// server answers lists of McKubes as an API server would, and counts them.
type server struct {
	client.Reader
	mckubes []*mcv1.McKube
	err     error
	lists   int
}

func (s *server) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	s.lists++
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("a list without a deadline")
	}
	o := client.ListOptions{}
	o.ApplyOptions(options)
	for _, m := range s.mckubes {
		if m.Namespace == o.Namespace {
			list.(*mcv1.McKubeList).Items = append(list.(*mcv1.McKubeList).Items, *m)
		}
	}
	return s.err
}

func TestAPodMayComeRightAfterItsMcKube(t *testing.T) {
	deleting := mckube("gone")
	deleting.DeletionTimestamp = ptr.To(metav1.Now())
	for name, tc := range map[string]struct {
		cached, live []*mcv1.McKube
		containers   []string
		claims       int
		lists        int
	}{
		"the cache has it":                    {[]*mcv1.McKube{mckube("m")}, []*mcv1.McKube{mckube("m")}, []string{"app"}, 1, 0},
		"only the API server has it":          {nil, []*mcv1.McKube{mckube("m")}, []string{"app"}, 1, 1},
		"the cache has one of two":            {[]*mcv1.McKube{mckube("m", of("app"))}, []*mcv1.McKube{mckube("m", of("app")), mckube("n", of("log"))}, []string{"app", "log"}, 2, 1},
		"it is another pod's":                 {nil, []*mcv1.McKube{mckube("m", podname("other"))}, []string{"app"}, 0, 1},
		"it is another namespace's":           {nil, []*mcv1.McKube{mckube("m", in("other"))}, []string{"app"}, 0, 1},
		"it is being deleted":                 {nil, []*mcv1.McKube{deleting}, []string{"app"}, 0, 1},
		"there is none, so the pod was first": {nil, nil, []string{"app"}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			live := &server{mckubes: tc.live}
			raw, err := json.Marshal(labelled(pod(tc.containers...), "sdv.com", "x"))
			if err != nil {
				t.Fatal(err)
			}
			w := &world{mckubes: tc.cached, live: live}
			got := patched(t, raw, send(t, w, webhooks.PathMutatePods, "Pod", raw))
			claims := slices.DeleteFunc(got.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
				return rtdra.Awaited(*c.ResourceClaimTemplateName)
			})
			if len(claims) != tc.claims || live.lists != tc.lists {
				t.Errorf("%d claims by %d lists, want %d by %d", len(claims), live.lists, tc.claims, tc.lists)
			}
		})
	}
}

func TestARealTimePodWaitsForAnAnswerOfTheAPIServer(t *testing.T) {
	for _, path := range []string{webhooks.PathMutatePods, webhooks.PathValidatePods} {
		w := &world{live: &server{err: errors.New("etcd is away")}}
		if r := ask(t, w, path, "Pod", pod("app")); r.Allowed || r.Result.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %+v", path, r.Result)
		}
	}
}
