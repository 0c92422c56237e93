package powermodel_test

import (
	"maps"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

func TestDevicesAreDrivenByTheirOwnLoad(t *testing.T) {
	t.Parallel()
	gpu, ok := powermodel.New(powermodel.Range{Idle: 50, Max: 350}, powermodel.Range{Idle: 30, Max: 300})
	if !ok {
		t.Fatal("refused")
	}
	for name, c := range map[string]struct{ host, devices, want float64 }{
		"idle":          {0, 0, 50},
		"host":          {1, 0, 80},
		"devices":       {0, 1, 320},
		"half of them":  {0, 0.5, 185},
		"all":           {1, 1, 350},
		"more than all": {7, 9, 350},
		"less than 0":   {-1, -1, 50},
	} {
		if got := gpu.Watts(c.host, c.devices); got != c.want {
			t.Errorf("%s: %v W, want %v", name, got, c.want)
		}
	}
}

// A Jetson's module has one figure for its CPUs and its GPU.
func TestTheLargerLoadDrivesWhatIsNotKnownApart(t *testing.T) {
	t.Parallel()
	module, ok := powermodel.New(powermodel.Range{Idle: 10, Max: 60}, powermodel.Range{})
	if !ok {
		t.Fatal("refused")
	}
	if a, b := module.Watts(0.2, 1), module.Watts(1, 0.2); a != 60 || b != 60 {
		t.Errorf("%v and %v W, want 60", a, b)
	}
}

func TestPowerOfNoMachineIsRefused(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"mckube.io/watts-idle": "50", "mckube.io/watts-max": "350",
		"mckube.io/device-watts-idle": "30", "mckube.io/device-watts-max": "300",
	}
	if _, ok := powermodel.FromLabels(good); !ok {
		t.Error("a good machine is refused")
	}
	hostile := []string{"-1", "NaN", "Inf", "-Inf", "1e999"}
	for key, values := range map[string][]string{
		"mckube.io/watts-idle": append(hostile, "351", "20"), "mckube.io/watts-max": append(hostile, "49", "310"),
		"mckube.io/device-watts-idle": append(hostile, "51"), "mckube.io/device-watts-max": append(hostile, "29", "340"),
	} {
		for _, value := range values {
			labels := maps.Clone(good)
			labels[key] = value
			if m, ok := powermodel.FromLabels(labels); ok && !hostOnly(m) {
				t.Errorf("%s=%s gives %+v", key, value, m)
			}
		}
	}
	if _, ok := powermodel.FromLabels(nil); ok {
		t.Error("no labels give a machine")
	}
}

// hostOnly: a part that cannot be read counts as not known apart.
func hostOnly(m powermodel.Machine) bool {
	return m == powermodel.Machine{Host: powermodel.Range{Idle: 50, Max: 350}}
}

// Labels and machine say the same, and a machine never draws less than idle nor more than its maximum.
func TestLabelsKeepTheMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		watts := func(name string) float64 { return float64(rapid.IntRange(0, 1_000_000).Draw(t, name)) / 100 }
		host := powermodel.Range{Idle: watts("host idle")}
		host.Max = host.Idle + watts("host")
		devices := powermodel.Range{Idle: watts("devices idle")}
		devices.Max = devices.Idle + watts("devices")
		m := powermodel.Machine{Host: host, Devices: devices}
		back, ok := powermodel.FromLabels(m.Labels())
		if !ok {
			t.Fatalf("%+v: labels %v are refused", m, m.Labels())
		}
		h, d := rapid.Float64Range(-1, 2).Draw(t, "load of the host"), rapid.Float64Range(-1, 2).Draw(t, "load of the devices")
		got, want := back.Watts(h, d), m.Watts(h, d)
		if math.Abs(got-want) > 0.01 {
			t.Fatalf("%+v: %v W, by its labels %v", m, want, got)
		}
		if whole := m.Whole(); want < whole.Idle-1e-6 || want > whole.Max+1e-6 {
			t.Fatalf("%+v draws %v W", m, want)
		}
	})
}
