package powermodel_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestKindsOfDevices(t *testing.T) {
	t.Parallel()
	for name, want := range map[corev1.ResourceName]powermodel.DeviceKind{
		"nvidia.com/gpu": powermodel.GPU, "amd.com/gpu": powermodel.GPU, "gpu.intel.com/i915": powermodel.GPU, "mainspring.dev/gpu-milli": powermodel.GPU,
		"furiosa.ai/rngd": powermodel.NPU, "hailo.ai/hailo8": powermodel.NPU, "aws.amazon.com/neuron": powermodel.NPU, "google.com/tpu": powermodel.NPU,
		"cpu": powermodel.None, "gpu": powermodel.None, "hugepages-2Mi": powermodel.None, "example.com/fuse": powermodel.None, "gpu.intel.com/i915_monitoring": powermodel.None, "gpu.intel.com/memory.max": powermodel.None, "aws.amazon.com/neurondevice": powermodel.None, "aws.amazon.com/neuroncore": powermodel.None,
	} {
		if got := powermodel.KindOf(name); got != want {
			t.Errorf("%s counts %q, want %q", name, got, want)
		}
	}
}

func TestDeviceLoad(t *testing.T) {
	t.Parallel()
	machine := list("cpu", "8", "hugepages-2Mi", "0", "nvidia.com/gpu", "2", "mainspring.dev/gpu-milli", "2000", "example.com/fuse", "100")
	for name, c := range map[string]struct {
		requested corev1.ResourceList
		want      float64
	}{
		"none":              {list("cpu", "8"), 0},
		"a whole one":       {list("nvidia.com/gpu", "1"), 0.5},
		"a share":           {list("mainspring.dev/gpu-milli", "500"), 0.25},
		"both count once":   {list("nvidia.com/gpu", "1", "mainspring.dev/gpu-milli", "1500"), 0.75},
		"too many":          {list("nvidia.com/gpu", "5"), 1},
		"not there":         {list("furiosa.ai/rngd", "1"), 0},
		"no accelerator":    {list("example.com/fuse", "100"), 0},
		"memory of a host":  {list("hugepages-2Mi", "4Mi"), 0},
		"nothing requested": {nil, 0},
	} {
		if got := powermodel.DeviceLoad(c.requested, machine); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := powermodel.DeviceLoad(list("nvidia.com/gpu", "1"), list("cpu", "8")); got != 0 {
		t.Errorf("%v on a machine without devices", got)
	}
}
