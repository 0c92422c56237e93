package driver

import (
	"context"
	"errors"
	"maps"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recoverLost makes the records of lost claims again. Those that are no longer what they were are forgotten.
func (d *Driver) recoverLost(ctx context.Context) {
	d.mu.Lock()
	lost := maps.Clone(d.lost)
	d.mu.Unlock()
	for uid, name := range lost {
		claim, err := d.claim(ctx, name)
		if err != nil {
			return // the API server is away: its specification stays
		}
		d.relearn(uid, claim)
	}
}

// relearn records a claim that was prepared once, whatever the cores are offered for now.
func (d *Driver) relearn(uid types.UID, claim *resourcev1.ResourceClaim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, still := d.lost[uid]; !still {
		return
	}
	why := "another claim has its name, or none"
	if claim != nil && claim.UID == uid {
		r, err := RecordOf(claim, d.config.NodeName)
		if err == nil {
			err = errors.Join(d.disk.save(r), d.cdi.save(r))
		}
		if err == nil {
			d.prepared[uid] = r
			delete(d.lost, uid)
			d.log.Info("Recorded a prepared claim again", "namespace", r.Namespace, "claim", r.Name)
			return
		}
		why = err.Error()
	}
	if err := d.forget(uid); err != nil {
		d.log.Error(err, "A lost claim is still prepared", "uid", uid)
		return
	}
	d.log.Info("Forgot a lost claim", "uid", uid, "why", why)
}
