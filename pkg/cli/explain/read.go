// Package explain answers why a real-time pod waits, or runs where it runs: the gates on its way to a
// core, with the numbers that decided.
package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// readTimeout bounds reading the cluster.
	readTimeout = time.Minute
	// page is how many objects are asked for at a time.
	page = 500
)

// Scheme is what the command reads.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme, resourcev1.AddToScheme, mcv1.AddToScheme, v1alpha1.AddToScheme, kcloudv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("making scheme: %w", err)
		}
	}
	return s, nil
}

// lists are what the state is made from, in the words of errors.
func lists() map[string]client.ObjectList {
	return map[string]client.ObjectList{
		"nodes": &corev1.NodeList{}, "pods": &corev1.PodList{}, "McKubes": &mcv1.McKubeList{}, "RTNodes": &v1alpha1.RTNodeList{},
		"ResourceSlices": &resourcev1.ResourceSliceList{}, "ResourceClaims": &resourcev1.ResourceClaimList{},
		"ResourceClaimTemplates": &resourcev1.ResourceClaimTemplateList{},
	}
}

// Read builds the state from the API, in all namespaces: what is free on a core depends on everybody.
func Read(ctx context.Context, c client.Reader, options state.Options) (*state.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var objects []runtime.Object
	all := lists()
	for _, what := range slices.Sorted(maps.Keys(all)) {
		found, err := readAll(ctx, c, all[what])
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("reading %s: the cluster does not know them; is Mainspring installed there?", what)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", what, err)
		}
		objects = append(objects, found...)
	}
	store, err := state.Build(options, objects...)
	if err != nil {
		return nil, err
	}
	return store.Snapshot(), nil
}

// readAll reads a list page by page.
func readAll(ctx context.Context, c client.Reader, list client.ObjectList) ([]runtime.Object, error) {
	var out []runtime.Object
	for next := ""; ; {
		if err := c.List(ctx, list, client.Limit(page), client.Continue(next)); err != nil {
			return nil, err
		}
		found, err := meta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			out = append(out, o.DeepCopyObject()) // the next page is read into the same list
		}
		if next = list.GetContinue(); next == "" {
			return out, nil
		}
	}
}

// Event is what somebody said about the pod.
type Event struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Source  string `json:"source"`
	Message string `json:"message"`
}

// shownEvents is how many of the latest events are told.
const shownEvents = 5

// AddEvents adds the latest events about the pod, equal ones once: the scheduler and the provisioner say there why they
// can do nothing for it, which no other object tells.
func (e *Explanation) AddEvents(ctx context.Context, c client.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var list corev1.EventList
	if err := c.List(ctx, &list, client.InNamespace(e.Namespace), client.MatchingFields{"involvedObject.uid": e.UID}); err != nil {
		return fmt.Errorf("reading events: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return told(b).Compare(told(a)) })
	for _, event := range list.Items {
		source := event.ReportingController
		if source == "" {
			source = event.Source.Component
		}
		one := Event{Type: event.Type, Reason: event.Reason, Source: source, Message: event.Message}
		if len(e.Events) < shownEvents && !slices.Contains(e.Events, one) { // told again in an Event of its own
			e.Events = append(e.Events, one)
		}
	}
	return nil
}

// told is when an event was last told, in whichever of its fields its author wrote that.
func told(e corev1.Event) time.Time {
	last := e.LastTimestamp.Time
	if e.EventTime.After(last) {
		last = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}
