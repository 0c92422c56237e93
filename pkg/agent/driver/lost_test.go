package driver_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
)

// A record that is damaged, or of another version of the agent, takes nothing from the pod: the specification by
// which its containers restart stays, also while the API server is away, and the record is made again from it.
func TestAClaimWhoseRecordIsLostIsKept(t *testing.T) {
	for name, spoil := range map[string]func(record []byte) []byte{
		"too long": func(record []byte) []byte { return append(record, bytes.Repeat([]byte(" "), 1<<20)...) },
		"damaged":  func(record []byte) []byte { return record[:20] },
		"of a later one": func(record []byte) []byte {
			return bytes.Replace(record, []byte(`"version":1`), []byte(`"version":2`), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.report(report("fifo", 900_000, 1))
			claim, gone := n.claim("kept", "core-1", 1_000), n.claim("gone", "core-1", 1_000)
			for _, c := range []*resourcev1.ResourceClaim{claim, gone} {
				if _, refusal := n.plugin.prepare(c); refusal != "" {
					t.Fatal(refusal)
				}
			}
			n.driver.Stop()
			for _, c := range []*resourcev1.ResourceClaim{claim, gone} {
				path := filepath.Join(n.records(), string(c.UID)+".json")
				record, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(path, spoil(record), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			n.delete(gone)
			here := api.Interface
			api.Interface = unreachable(t)
			n.start()
			if claims := n.driver.Claims(claim.Status.ReservedFor[0].UID); len(claims) > 0 {
				t.Errorf("%d records are believed", len(claims))
			}
			for _, c := range []*resourcev1.ResourceClaim{claim, gone} {
				if _, err := os.Stat(filepath.Join(n.cdi, "cpu.mckube.io-claim_"+string(c.UID)+".json")); err != nil {
					t.Errorf("%s: the specification is gone: %v", c.Name, err)
				}
			}
			n.driver.Stop()
			api.Interface = here
			n.start()
			eventually(t, "recording it again", func() bool { return len(n.driver.Claims(claim.Status.ReservedFor[0].UID)) == 1 })
			eventually(t, "forgetting the one that is gone", func() bool {
				_, err := os.Stat(filepath.Join(n.cdi, "cpu.mckube.io-claim_"+string(gone.UID)+".json"))
				return errors.Is(err, fs.ErrNotExist)
			})
			eventually(t, "forgetting its record", func() bool {
				left, err := filepath.Glob(filepath.Join(n.records(), string(gone.UID)+".json*"))
				return err == nil && len(left) == 0
			})
			n.expectPrepared(claim)
		})
	}
}
