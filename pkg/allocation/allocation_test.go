package allocation_test

import (
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/allocation"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

func amounts(cpu, memory, gpus int) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(cpu), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(memory)<<20, resource.BinarySI),
	}
	if gpus > 0 {
		list["nvidia.com/gpu"] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
	return list
}

var gpuMachine = allocation.Machine{
	Price: 8, Allocatable: amounts(16000, 64<<10, 4),
	Power: powermodel.Machine{Host: powermodel.Range{Idle: 40, Max: 140}, Devices: powermodel.Range{Idle: 100, Max: 1100}},
}

func TestHalfOfAMachineIsHalfOfItsCost(t *testing.T) {
	t.Parallel()
	pods, idle := gpuMachine.Shares([]corev1.ResourceList{amounts(8000, 32<<10, 2)})
	if math.Abs(pods[0].Cost-4) > 1e-9 || math.Abs(idle.Cost-4) > 1e-9 {
		t.Errorf("the pod costs %v, idle %v, want 4 each", pods[0].Cost, idle.Cost)
	}
	// Half of the 140 W at rest, half of the 100 W of the CPUs, half of the 1000 W of the GPUs.
	if math.Abs(pods[0].Watts-620) > 1e-9 || math.Abs(idle.Watts-70) > 1e-9 {
		t.Errorf("the pod draws %v W, idle %v, want 620 and 70", pods[0].Watts, idle.Watts)
	}
}

func TestAGPUPodPaysForTheGPU(t *testing.T) {
	t.Parallel()
	pods, _ := gpuMachine.Shares([]corev1.ResourceList{amounts(1000, 1<<10, 4), amounts(15000, 63<<10, 0)})
	if pods[0].Cost < 3*pods[1].Cost {
		t.Errorf("four GPUs cost %v, nearly all cores and memory %v", pods[0].Cost, pods[1].Cost)
	}
	if pods[0].Watts < 1000 {
		t.Errorf("a pod that has all GPUs draws %v W of their 1000", pods[0].Watts)
	}
}

// Shares and what is idle add up to the machine, whatever is requested, and do not depend on the order of the pods.
func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
		m := allocation.Machine{Price: float64(n("price", 100_000)) / 1000, Allocatable: amounts(1+n("cpu", 128_000), 1+n("memory", 1<<20), n("gpus", 8))}
		m.Power.Host.Idle = float64(n("idle", 500))
		m.Power.Host.Max = m.Power.Host.Idle + float64(n("more", 500))
		if rapid.Bool().Draw(t, "devices apart") {
			m.Power.Devices = powermodel.Range{Idle: 10, Max: 1000}
		}
		var requests []corev1.ResourceList
		for range n("pods", 20) {
			requests = append(requests, amounts(n("cpu", 64_000), n("memory", 1<<19), n("gpus", 4)))
		}
		pods, idle := m.Shares(requests)
		sum := idle
		var load, devices float64
		for i, p := range pods {
			if p.Cost < 0 || p.Watts < 0 || p.Part < 0 {
				t.Fatalf("pod %d has %+v", i, p)
			}
			sum = sum.Plus(p)
			load += requests[i].Cpu().AsApproximateFloat64() / m.Allocatable.Cpu().AsApproximateFloat64()
			devices += powermodel.DeviceLoad(requests[i], m.Allocatable)
		}
		if want := m.Power.Watts(load, devices); math.Abs(sum.Watts-want) > 1e-6*max(1, want) {
			t.Fatalf("shares draw %v W, the machine %v", sum.Watts, want)
		}
		if math.Abs(sum.Cost-m.Price) > 1e-6*max(1, m.Price) || math.Abs(sum.Part-1) > 1e-6 {
			t.Fatalf("shares are %+v of a machine for %v", sum, m.Price)
		}
		slices.Reverse(requests)
		back, _ := m.Shares(requests)
		slices.Reverse(back)
		for i := range pods {
			if math.Abs(pods[i].Cost-back[i].Cost) > 1e-9*max(1, m.Price) || math.Abs(pods[i].Watts-back[i].Watts) > 1e-6 {
				t.Fatalf("pod %d has %+v, in another order %+v", i, pods[i], back[i])
			}
		}
	})
}
