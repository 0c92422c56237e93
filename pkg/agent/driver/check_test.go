package driver_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

const nodeName = "edge-1"

// claimOn is a claim as the scheduler leaves it: a share of a core, reserved for pod uid-pod-<name>.
func claimOn(name, device string, ppm int64, options ...func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	result := resourcev1.DeviceRequestAllocationResult{Request: "core", Driver: v1alpha1.DriverCPU, Pool: nodeName, Device: device}
	if ppm > 0 {
		result.ShareID = ptr.To(types.UID("0a2b4c6d-0000-4000-8000-" + fmt.Sprintf("%012x", len(name)*1000+int(ppm%1000))))
		result.ConsumedCapacity = bandwidth(fmt.Sprint(ppm))
	}
	c := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: "rt-app"}},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "core", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.DeviceClassRTCore, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		}}}},
		Status: resourcev1.ResourceClaimStatus{
			Allocation:  &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{result}}},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-" + name, UID: types.UID("uid-pod-" + name)}},
		},
	}
	for _, o := range options {
		o(c)
	}
	return c
}

func first(c *resourcev1.ResourceClaim) *resourcev1.DeviceRequestAllocationResult {
	return &c.Status.Allocation.Devices.Results[0]
}

// bandwidth is what a share takes of a core.
func bandwidth(quantity string) map[resourcev1.QualifiedName]resource.Quantity {
	return map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityRTBandwidth: resource.MustParse(quantity)}
}

func TestRecordOfAClaim(t *testing.T) {
	r, err := driver.RecordOf(claimOn("a", "core-2", 200_000, func(c *resourcev1.ResourceClaim) {
		foreign := *first(c)
		foreign.Driver, foreign.Pool = "gpu.example.com", "elsewhere"
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, foreign)
	}), nodeName)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Shares) != 1 || r.Shares[0].Core != 2 || r.Shares[0].PPM != 200_000 || r.PodClaim != "rt-app" || !slices.Equal(r.Pods, []types.UID{"uid-pod-a"}) {
		t.Errorf("%+v", r)
	}
}

func TestForeignClaimsAreRefused(t *testing.T) {
	for want, change := range map[string]func(*resourcev1.ResourceClaim){
		`device core-1 is in pool "edge-2", that of another node; this is "edge-1"`: func(c *resourcev1.ResourceClaim) { first(c).Pool = "edge-2" },
		"has no device of driver cpu.mckube.io":                                     func(c *resourcev1.ResourceClaim) { first(c).Driver = "gpu.example.com" },
		"was not given a core, or that was taken back":                              func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil },
		"is not reserved for any pod":                                               func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor = nil },
		`device "core-01" is not of this driver; want core-<number>`:                func(c *resourcev1.ResourceClaim) { first(c).Device = "core-01" },
		`device "gpu-1" is not of this driver`:                                      func(c *resourcev1.ResourceClaim) { first(c).Device = "gpu-1" },
		`device "core--1" is not of this driver`:                                    func(c *resourcev1.ResourceClaim) { first(c).Device = "core--1" },
		`has the UID "../x"`:                                                        func(c *resourcev1.ResourceClaim) { c.UID = "../x" },
		"device core-1: ppm -1; want 0 to 1000000":                                  func(c *resourcev1.ResourceClaim) { first(c).ConsumedCapacity = bandwidth("-1") },
		"device core-1: ppm 1000001; want 0 to 1000000":                             func(c *resourcev1.ResourceClaim) { first(c).ConsumedCapacity = bandwidth("1000001") },
	} {
		if _, err := driver.RecordOf(claimOn("a", "core-1", 1_000, change), nodeName); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func recordOn(t interface{ Fatal(...any) }, name, device string, ppm int64) driver.Record {
	r, err := driver.RecordOf(claimOn(name, device, ppm), nodeName)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestClaimsAreAdmittedOnCoresThatAreOffered(t *testing.T) {
	offer := driver.Offer{Cores: []rt.Core{{ID: 1, Capacity: 800_000}, {ID: 2, Capacity: 800_000}}, Unfit: map[int]string{3: "it is offline"}}
	prepared := map[types.UID]driver.Record{}
	for _, r := range []driver.Record{recordOn(t, "a", "core-1", 500_000), recordOn(t, "whole", "core-2", 0)} {
		prepared[r.UID] = r
	}
	for name, tc := range map[string]struct {
		record driver.Record
		want   string
	}{
		"fits":             {recordOn(t, "b", "core-1", 300_000), ""},
		"itself, again":    {recordOn(t, "a", "core-1", 800_000), ""},
		"too large":        {recordOn(t, "b", "core-1", 300_001), "overbooked: claim default/b takes 300001 ppm of core 1, which has 800000, and of that others hold 500000: default/a (500000)"},
		"beside the whole": {recordOn(t, "b", "core-2", 1), "overbooked"},
		"offline":          {recordOn(t, "b", "core-3", 1), "claim default/b is on core 3, which takes no claims: it is offline"},
		"not ours":         {recordOn(t, "b", "core-0", 1), "claim default/b is on core 0, which takes no claims: it is reserved, isolated or not governed"},
	} {
		err := offer.Admits(tc.record, prepared)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
		if strings.HasPrefix(tc.want, "overbooked") != errors.Is(err, driver.ErrOverbooked) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// However claims come, those prepared together never hold more of a core than it has.
func TestPreparedClaimsFitTheirCores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offer := driver.Offer{Cores: []rt.Core{{ID: 1, Capacity: 700_000}, {ID: 2, Capacity: 900_000}}}
		prepared := map[types.UID]driver.Record{}
		for i := range rapid.IntRange(1, 12).Draw(t, "n") {
			device := rapid.SampledFrom([]string{"core-0", "core-1", "core-2"}).Draw(t, "device")
			r := recordOn(t, fmt.Sprint("c", i), device, rapid.Int64Range(0, 500_000).Draw(t, "ppm"))
			if offer.Admits(r, prepared) == nil {
				prepared[r.UID] = r
			}
		}
		for _, core := range offer.Cores {
			sum, wholes := int64(0), 0
			for _, r := range prepared {
				for _, s := range r.Shares {
					if s.Core == core.ID && s.PPM == 0 {
						wholes++
					} else if s.Core == core.ID {
						sum += s.PPM
					}
				}
			}
			if rt.PPM(sum) > core.Capacity || wholes > 1 || wholes == 1 && sum > 0 {
				t.Fatalf("core %d holds %d ppm and %d whole", core.ID, sum, wholes)
			}
		}
	})
}
