package driver_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
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

// FuzzRecordOf: what is prepared for a claim is what can be read again after a restart, and however much the claims of a core say that they
// take, together they take no more of it than there is.
func FuzzRecordOf(f *testing.F) {
	f.Add("core-1", "200000", "core-2", "1", "500k")
	f.Add("core-1", "9223372036854775807", "core-1", "9223372036854775807", "700000") // they add up to -2
	f.Add("core-1", "-700000", "core-1", "700000", "0")
	f.Add("core-01", "0.5", "core-1", "9E", "1m")
	f.Fuzz(func(t *testing.T, device, quantity, other, second, later string) {
		amounts := make([]resource.Quantity, 3)
		for i, text := range []string{quantity, second, later} {
			var err error
			if amounts[i], err = resource.ParseQuantity(text); err != nil {
				return
			}
		}
		taking := func(name, device string, amount resource.Quantity) *resourcev1.ResourceClaim {
			c := claimOn(name, device, 0)
			first(c).ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityRTBandwidth: amount}
			return c
		}
		claim := taking("a", device, amounts[0])
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, *first(taking("a", other, amounts[1])))
		offer := driver.Offer{Cores: []rt.Core{{ID: 1, Capacity: 800_000}, {ID: 2, Capacity: 800_000}}}
		prepared, sum := map[types.UID]driver.Record{}, map[int]int64{}
		for _, c := range []*resourcev1.ResourceClaim{claim, taking("b", "core-1", amounts[2])} {
			r, err := driver.RecordOf(c, nodeName)
			if err != nil {
				continue
			}
			data, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := driver.ParseRecord(data); err != nil || !reflect.DeepEqual(back, r) {
				t.Fatalf("%+v, kept and read again %+v, %v", r, back, err)
			}
			if offer.Admits(r, prepared) != nil {
				continue
			}
			prepared[r.UID] = r
			for _, s := range r.Shares {
				sum[s.Core] += s.PPM
				if s.PPM < 0 || sum[s.Core] > 800_000 {
					t.Fatalf("core %d is given to %+v", s.Core, prepared)
				}
			}
		}
	})
}

// A record that was read is one that can be written and read again; nothing else is believed.
func FuzzParseRecord(f *testing.F) {
	good, err := json.Marshal(recordOn(f, "a", "core-1", 1_000))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "", "{}", `{"version":2}`, `{"version":1,"uid":"../../etc"}`, string(good[:len(good)/2]), "null", "[]",
		strings.Replace(string(good), `"ppm":1000`, `"ppm":9223372036854775807`, 1), strings.Replace(string(good), `"core":1`, `"core":-1`, 1),
	} {
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
		for _, s := range r.Shares {
			if s.Core < 0 || s.PPM < 0 || rt.PPM(s.PPM) > rt.OneCore {
				t.Fatalf("believed %+v", r)
			}
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
