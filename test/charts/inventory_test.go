package charts_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/chart"
)

// inventory are values of a release that switches real machines.
func inventory(settings object) object {
	return object{"cloudProvider": object{"name": "inventory", "inventory": settings}, "webhook": object{"enabled": false}}
}

// rightsOn are the rules about a resource in roles whose name ends so.
func rightsOn(t *testing.T, manifests chart.Manifests, resource string) (verbs, names []string) {
	t.Helper()
	for _, r := range roles(t, manifests) {
		for _, rule := range r.rules {
			if slices.Contains(rule.Resources, resource) {
				verbs, names = append(verbs, rule.Verbs...), append(names, rule.ResourceNames...)
			}
		}
	}
	return verbs, names
}

func TestInventoryRights(t *testing.T) {
	manifests := template(t, inventory(object{"secrets": list{"bmc-1", "ca"}}))
	if verbs, names := rightsOn(t, manifests, "secrets"); !slices.Equal(verbs, []string{"get"}) || !slices.Equal(names, []string{"bmc-1", "ca"}) {
		t.Errorf("Secrets may be %v, those named %v", verbs, names)
	}
	for _, resource := range []string{"simulatedfaults", "kwoknodeclasses", "leases/status"} {
		if verbs, _ := rightsOn(t, manifests, resource); len(verbs) != 0 {
			t.Errorf("%s may be %v: they are the simulated provider's", resource, verbs)
		}
	}
	if verbs, _ := rightsOn(t, manifests, "nodes"); slices.Contains(verbs, "create") {
		t.Error("Nodes may be created: kubelets join by themselves")
	}
	if verbs, _ := rightsOn(t, template(t, inventory(object{})), "secrets"); len(verbs) != 0 {
		t.Errorf("no Secret is named, and Secrets may be %v", verbs)
	}
	if verbs, _ := rightsOn(t, template(t, nil), "inventorymachines"); len(verbs) != 0 {
		t.Errorf("the simulated provider may have machines %v", verbs)
	}
	args := arguments(t, inventory(object{}))
	if want := "--inventory-secret-namespace=" + namespace; !slices.Contains(args, want) {
		t.Errorf("argument %s is missing from %q", want, args)
	}
}

// Programs are mounted so that nobody may change them: the controller runs no others.
func TestInventoryProgramsAreMounted(t *testing.T) {
	pod := deployment(t, inventory(object{"programs": "switches"})).Spec.Template.Spec
	if len(pod.Volumes) != 1 || pod.Volumes[0].ConfigMap == nil || pod.Volumes[0].ConfigMap.Name != "switches" || *pod.Volumes[0].ConfigMap.DefaultMode != 0o555 {
		t.Fatalf("the volumes are %+v", pod.Volumes)
	}
	mount := pod.Containers[0].VolumeMounts[0]
	if want := "--inventory-exec-directory=" + mount.MountPath; !mount.ReadOnly || !slices.Contains(pod.Containers[0].Args, want) {
		t.Errorf("mount %+v, argument %s in %q", mount, want, pod.Containers[0].Args)
	}
}

func TestInventoryRunsNoSimulatedAgents(t *testing.T) {
	for _, d := range template(t, inventory(object{})).OfKind("Deployment") {
		if d.GetName() != "mainspring" {
			t.Errorf("Deployment %s", d.GetName())
		}
	}
}
