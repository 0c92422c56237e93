package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// rushLimit bounds how long critical pods may be without a core.
const rushLimit = 5 * time.Minute

// rush is the workload that comes when a storm of so many pods is over: critical pods for whom there is no core, a twentieth of
// the pods that are there.
func rush(pods int) workload {
	return workload{"cell-0", "rush", mcoperatorv1.CriticalityHigh, int32(max(1, pods/20)), 14, 14, "240m", ""} //nolint:gosec // some hundreds
}

// rushIn makes the pods, and waits until all have cores. Those that are there are judged as well: nobody critical may pay for the newcomers.
func (w *world) rushIn(ctx context.Context, there []workload, pods int) (o outcome, recorded bool, err error) {
	l := rush(pods)
	record, err := newRecord(ctx, w.client, append(slices.Clone(there), l))
	if err != nil {
		return o, false, err
	}
	defer record.stop()
	if err := w.deploy(ctx, []workload{l}); err != nil {
		return o, false, err
	}
	late := w.awaitFor(ctx, rushLimit, "the rush on cores", func(context.Context) (bool, string, error) {
		served, cores := 0, onCores(history.Live[*v1alpha1.RTNode](record.recorder))
		for _, pod := range history.Live[*corev1.Pod](record.recorder) {
			if pod.Namespace == l.namespace && pod.Labels[test.Label] == l.name && cores[pod.UID] {
				served++
			}
		}
		return served >= int(l.replicas), fmt.Sprintf("%d of %d", served, l.replicas), nil
	})
	if o, err = record.outcome(ctx); err != nil {
		return o, false, err
	}
	return o, true, late
}
