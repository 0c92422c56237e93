package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. The kubelet asks again after each fault, and
// after its own restart for what is prepared already.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.awaitOffer(ctx, claims)
	out := map[types.UID]kubeletplugin.PrepareResult{}
	var fresh []Record
	for _, claim := range claims {
		r, isNew, err := d.prepare(ctx, claim)
		if err != nil {
			d.log.Error(err, "A claim was refused", "namespace", claim.Namespace, "claim", claim.Name)
			out[claim.UID] = kubeletplugin.PrepareResult{Err: err}
			continue
		}
		out[claim.UID] = kubeletplugin.PrepareResult{Devices: devicesOf(r)}
		if isNew {
			fresh = append(fresh, r)
		}
	}
	d.await(ctx, fresh)
	return out, nil
}

// awaitOffer gives the fast path time to report which cores take real-time work, when a claim is new: an agent
// that has just started registers before it has heard, and what it refuses then the kubelet tries again only
// at its next sync of the pod, a minute later.
func (d *Driver) awaitOffer(ctx context.Context, claims []*resourcev1.ResourceClaim) {
	end := d.config.Clock.NewTimer(awaitTime)
	defer end.Stop()
	for {
		known, changed := d.offered(claims)
		if known {
			return
		}
		select {
		case <-changed:
		case <-end.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// offered tells whether it is known which cores the claims may be on, and else what is closed when it may be.
func (d *Driver) offered(claims []*resourcev1.ResourceClaim) (known bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh := slices.ContainsFunc(claims, func(c *resourcev1.ResourceClaim) bool {
		_, prepared := d.prepared[c.UID]
		return !prepared
	})
	return d.offer != nil || !fresh, d.changed
}

// prepare tells whether the claim was not prepared before.
func (d *Driver) prepare(ctx context.Context, claim *resourcev1.ResourceClaim) (r Record, isNew bool, err error) {
	if r, err = RecordOf(claim, d.config.NodeName); err != nil {
		return r, false, err
	}
	machine, err := d.config.Machine()
	if err != nil {
		return r, false, fmt.Errorf("reading the machine's cores: %w", err)
	}
	if isNew, err = d.take(r, machine); errors.Is(err, ErrOverbooked) {
		d.sweep(ctx) // perhaps by claims of pods that are gone
		isNew, err = d.take(r, machine)
	}
	return r, isNew, err
}

// take writes the record and then the CDI specification, unless both are there.
func (d *Driver) take(r Record, machine host.Topology) (isNew bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, known := d.prepared[r.UID]
	known = known && slices.EqualFunc(before.Shares, r.Shares, sameShare)
	if err := d.admits(r, machine, known); err != nil {
		return false, err
	}
	if !known || !slices.Equal(before.Pods, r.Pods) || before.PodClaim != r.PodClaim {
		if err := d.disk.save(r); err != nil {
			return false, err
		}
		d.prepared[r.UID] = r
	}
	delete(d.lost, r.UID)
	return !known, d.cdi.save(r)
}

func sameShare(a, b Share) bool {
	return a.Device == b.Device && a.Request == b.Request && a.PPM == b.PPM
}

// admits fails closed: without a report nobody knows which cores take claims. What is prepared already only
// needs its core to be there.
func (d *Driver) admits(r Record, machine host.Topology, known bool) error {
	for _, core := range r.Cores() {
		if c, ok := find(machine.Cores, core); !ok || !c.Online {
			return fmt.Errorf("claim %s/%s is on core %d, which is offline", r.Namespace, r.Name, core)
		}
	}
	switch {
	case known:
		return nil
	case d.offer == nil:
		return fmt.Errorf("claim %s/%s: the fast path of node %s has not reported yet which cores take real-time work", r.Namespace, r.Name, d.config.NodeName)
	}
	return d.offer.Admits(r, d.prepared)
}

// devicesOf is the kubelet's answer. A claim has one CDI device, which each request of it names once.
func devicesOf(r Record) []kubeletplugin.Device {
	var out []kubeletplugin.Device
	for i, s := range r.Shares {
		device := kubeletplugin.Device{Requests: []string{s.Request}, PoolName: s.Pool, DeviceName: s.Device, ShareID: s.ShareID}
		if !slices.ContainsFunc(r.Shares[:i], func(b Share) bool { return b.Request == s.Request }) {
			device.CDIDeviceIDs = []string{cdiID(r.UID)}
		}
		out = append(out, device)
	}
	return out
}

// await gives the controller time to put the containers into the node's table, for all claims at once.
func (d *Driver) await(ctx context.Context, fresh []Record) {
	if d.config.Servers == nil {
		return
	}
	ticker, end := d.config.Clock.NewTicker(awaitStep), d.config.Clock.NewTimer(awaitTime)
	defer ticker.Stop()
	defer end.Stop()
	for slices.ContainsFunc(fresh, func(r Record) bool { return !inTable(r, d.config.Servers) }) {
		select {
		case <-ticker.C():
		case <-end.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// inTable tells whether all pods of a claim have the container that uses it in the table. Nobody knows that
// of a claim that was not made from a template: it waits for nothing.
func inTable(r Record, servers Servers) bool {
	return r.PodClaim == "" || !slices.ContainsFunc(r.Pods, func(pod types.UID) bool {
		_, ok := ServerOf(r, pod, servers.OfPod(pod))
		return !ok
	})
}

// ServerOf is the server of the container that uses the claim in a pod whose servers are given.
func ServerOf(r Record, pod types.UID, servers []table.Server) (table.Server, bool) {
	i := slices.IndexFunc(servers, func(s table.Server) bool {
		container, ok := strings.CutPrefix(s.ID, rtdra.ServerID(pod, ""))
		return ok && rtdra.ClaimName(container) == r.PodClaim
	})
	if i < 0 {
		return table.Server{}, false
	}
	return servers[i], true
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[types.UID]error{}
	for _, claim := range claims {
		if !validUID(claim.UID) {
			out[claim.UID] = fmt.Errorf("claim %s has the UID %q; want letters, digits and dashes", claim.NamespacedName, claim.UID)
			continue
		}
		out[claim.UID] = d.forget(claim.UID)
	}
	return out, nil
}

// forget undoes prepare in the reverse order, also where only a part is there.
func (d *Driver) forget(uid types.UID) error {
	if err := d.cdi.remove(uid); err != nil {
		return err
	}
	if err := d.disk.remove(uid); err != nil {
		return err
	}
	delete(d.prepared, uid)
	delete(d.lost, uid)
	return nil
}

// sweepUntil forgets claims whose pods are gone, at once and then now and again: a kubelet that lost its
// own records never unprepares them.
func (d *Driver) sweepUntil(ctx context.Context) {
	ticker := d.config.Clock.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		d.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (d *Driver) sweep(ctx context.Context) {
	d.recoverLost(ctx)
	d.mu.Lock()
	records := make([]Record, 0, len(d.prepared))
	for _, r := range d.prepared {
		records = append(records, r)
	}
	d.mu.Unlock()
	for _, r := range records {
		claim, err := d.claim(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
		if err != nil {
			return // the API server is away: what is prepared stays
		}
		if why := stale(r, claim); why != "" {
			d.forgetStale(r, why)
		}
	}
}

// claim is what the API server has under a name; nil when that is nothing.
func (d *Driver) claim(ctx context.Context, name types.NamespacedName) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	claim, err := d.config.Client.ResourceV1().ResourceClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}

// forgetStale does so unless the claim was prepared anew meanwhile.
func (d *Driver) forgetStale(r Record, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now, ok := d.prepared[r.UID]; !ok || !slices.Equal(now.Pods, r.Pods) {
		return
	}
	if err := d.forget(r.UID); err != nil {
		d.log.Error(err, "A stale claim is still prepared", "namespace", r.Namespace, "claim", r.Name)
		return
	}
	d.log.Info("Forgot a prepared claim", "namespace", r.Namespace, "claim", r.Name, "why", why)
}
