package eviction_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/eviction"
)

func TestAsk(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	lost := errors.New("connection reset by peer")
	for name, tc := range map[string]struct {
		answer error
		want   eviction.Verdict
		says   string
		err    error
	}{
		"goes":            {want: eviction.Evicted},
		"gone":            {answer: apierrors.NewNotFound(pods, "p"), want: eviction.Gone},
		"another pod":     {answer: apierrors.NewConflict(pods, "p", errors.New("Precondition failed: UID")), want: eviction.Gone},
		"a budget":        {answer: apierrors.NewTooManyRequests("the budget web needs 2", 10), want: eviction.Later, says: "the budget web needs 2"},
		"several budgets": {answer: apierrors.NewInternalError(errors.New("this pod has more than one")), want: eviction.Later, says: "this pod has more than one"},
		"a policy":        {answer: apierrors.NewForbidden(pods, "p", errors.New("only on Sundays")), want: eviction.Never, says: "only on Sundays"},
		"a webhook":       {answer: apierrors.NewBadRequest("admission webhook denied the request"), want: eviction.Never, says: "denied the request"},
		"a broken line":   {answer: lost, err: lost},
		"a timeout":       {answer: apierrors.NewTimeoutError("who knows", 1), err: apierrors.NewTimeoutError("who knows", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.Namespace, pod.Name, pod.UID = "default", "p", "42"
			c := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, sub string, o, body client.Object, _ ...client.SubResourceCreateOption) error {
					asked := body.(*policyv1.Eviction).DeleteOptions.Preconditions.UID
					if sub != "eviction" || o.GetName() != "p" || asked == nil || *asked != types.UID("42") {
						t.Errorf("asked for %s of %s with UID %v", sub, o.GetName(), asked)
					}
					return tc.answer
				},
			})
			got, err := eviction.Ask(t.Context(), c, pod)
			if got.Verdict != tc.want || !strings.Contains(got.Why, tc.says) || (err == nil) != (tc.err == nil) {
				t.Errorf("answer %+v, error %v", got, err)
			}
			if got.Refused() != (tc.says != "") {
				t.Errorf("refused: %t", got.Refused())
			}
		})
	}
}
