package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/heartbeat"
)

// FieldManager is under which name agents apply RTNode.status.
const FieldManager = "mainspring-agent"

// write publishes and reports what has changed, and says when to look again.
func (f *Fleet) write(ctx context.Context, a *agent, node *corev1.Node, rtNode *v1alpha1.RTNode) (time.Duration, error) {
	if a.machine.Silent() {
		return f.untilNext(a, 0), nil
	}
	if err := f.publish(ctx, node, a.machine.Devices()); err != nil {
		return 0, err
	}
	if rtNode == nil {
		return f.untilNext(a, 0), nil
	}
	wait, err := f.report(ctx, a, rtNode)
	if err != nil {
		return 0, err
	}
	return f.untilNext(a, wait), nil
}

// untilNext is the time until something is due on the machine, at most wait, if that is not 0.
func (f *Fleet) untilNext(a *agent, wait time.Duration) time.Duration {
	at, ok := a.machine.Next()
	if !ok {
		return wait
	}
	due := max(soonest, at.Sub(f.Clock.Now()))
	if wait > 0 {
		return min(wait, due)
	}
	return due
}

// report writes the status when it has changed, at most once in statusEvery, and renews the Lease when that is due; counts
// alone wait as long as those of the real agent do. It returns after how long to report again.
func (f *Fleet) report(ctx context.Context, a *agent, rtNode *v1alpha1.RTNode) (time.Duration, error) {
	now := f.Clock.Now()
	status := a.machine.Status()
	known := a.everWritten && a.reportedOn == rtNode.UID
	changed := !known || !apiequality.Semantic.DeepEqual(status, a.reported)
	since, every := now.Sub(a.reportedAt), statusEvery
	if changed && apiequality.Semantic.DeepEqual(status.Uncounted(), a.reported.Uncounted()) {
		every = v1alpha1.CountsEvery
	}
	switch {
	case known && changed && since < every:
		return every - since, nil
	case !changed && since < heartbeat.Refresh:
		return f.renew(ctx, a, rtNode, now)
	}
	if err := f.apply(ctx, rtNode, status, now); err != nil {
		return 0, err
	}
	a.reported, a.reportedOn, a.reportedAt, a.livedAt, a.everWritten = status, rtNode.UID, now, now, true
	return f.Heartbeat, nil
}

// renew shows by the Lease that the agent lives, if it has not shown it for long.
func (f *Fleet) renew(ctx context.Context, a *agent, rtNode *v1alpha1.RTNode, now time.Time) (time.Duration, error) {
	if since := now.Sub(a.livedAt); since < f.Heartbeat {
		return f.Heartbeat - since, nil
	}
	lease := heartbeat.Lease(rtNode.Name, rtNode.UID, now)
	data, err := json.Marshal(lease)
	if err != nil {
		return 0, fmt.Errorf("encoding the Lease: %w", err)
	}
	err = f.Client.Patch(ctx, lease.DeepCopy(), client.RawPatch(types.MergePatchType, data), client.FieldOwner(FieldManager))
	if apierrors.IsNotFound(err) {
		err = f.Client.Create(ctx, lease, client.FieldOwner(FieldManager))
	}
	if err != nil {
		return 0, fmt.Errorf("renewing the Lease: %w", err)
	}
	a.livedAt = now
	return f.Heartbeat, nil
}

// apply writes the status of one certain RTNode; that it is gone is no error.
func (f *Fleet) apply(ctx context.Context, rtNode *v1alpha1.RTNode, status v1alpha1.RTNodeStatus, now time.Time) error {
	status.HeartbeatTime = ptr.To(metav1.NewMicroTime(now))
	applied := &v1alpha1.RTNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RTNode"},
		ObjectMeta: metav1.ObjectMeta{Name: rtNode.Name, UID: rtNode.UID},
		Status:     status,
	}
	data, err := json.Marshal(applied)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	patch := client.RawPatch(types.ApplyPatchType, data)
	err = f.Client.Status().Patch(ctx, applied, patch, client.FieldOwner(FieldManager), client.ForceOwnership)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // it was replaced or has gone: its watch event is on the way
	}
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// publish brings the node's ResourceSlices to what its devices are.
func (f *Fleet) publish(ctx context.Context, node *corev1.Node, devices []resourcev1.Device) error {
	present := &resourcev1.ResourceSliceList{}
	if err := f.Client.List(ctx, present, client.MatchingFields{NodeNameField: node.Name}); err != nil {
		return fmt.Errorf("listing the node's ResourceSlices: %w", err)
	}
	wanted := Slices(node, devices, present.Items)
	for i := range wanted {
		if err := f.put(ctx, &wanted[i], present.Items); err != nil {
			return err
		}
	}
	for i := range present.Items {
		if !slices.ContainsFunc(wanted, func(w resourcev1.ResourceSlice) bool { return w.Name == present.Items[i].Name }) {
			if err := f.Client.Delete(ctx, &present.Items[i]); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting ResourceSlice: %w", err)
			}
		}
	}
	return nil
}

// put creates a slice, or updates the present one of its name.
func (f *Fleet) put(ctx context.Context, wanted *resourcev1.ResourceSlice, present []resourcev1.ResourceSlice) error {
	i := slices.IndexFunc(present, func(p resourcev1.ResourceSlice) bool { return p.Name == wanted.Name })
	if i < 0 {
		if err := f.Client.Create(ctx, wanted); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating ResourceSlice: %w", err)
		}
		return nil
	}
	if wanted.ResourceVersion != "" {
		return nil // it is the present one
	}
	wanted.ResourceVersion = present[i].ResourceVersion
	if err := f.Client.Update(ctx, wanted); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("updating ResourceSlice: %w", err)
	}
	return nil
}
