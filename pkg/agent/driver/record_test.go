package driver_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
)

func TestStaleClaims(t *testing.T) {
	r := recordOn(t, "a", "core-1", 1_000)
	now := claimOn("a", "core-1", 1_000)
	for want, c := range map[string]*resourcev1.ResourceClaim{
		"":                              now,
		"the claim is gone":             nil,
		"another claim has its name":    claimOn("a", "core-1", 1_000, func(c *resourcev1.ResourceClaim) { c.UID = "other" }),
		"its core was taken back":       claimOn("a", "core-1", 1_000, func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil }),
		"its pods are gone":             claimOn("a", "core-1", 1_000, func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor[0].UID = "other" }),
		"its pods are gone, every one ": claimOn("a", "core-1", 1_000, func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor = nil }),
	} {
		if got := driver.Stale(r, c); got != want && !strings.HasPrefix(want, got+",") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A record that was read is one that can be written and read again; nothing else is believed.
func FuzzParseRecord(f *testing.F) {
	good, err := json.Marshal(recordOn(f, "a", "core-1", 1_000))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "", "{}", `{"version":2}`, `{"version":1,"uid":"../../etc"}`, string(good[:len(good)/2]), "null", "[]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := driver.ParseRecord(data)
		if err != nil {
			return
		}
		if len(r.Cores()) == 0 || strings.ContainsAny(string(r.UID), "/.") {
			t.Fatalf("believed %+v", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := driver.ParseRecord(again); err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%+v became %+v, %v", r, back, err)
		}
	})
}
