package chart

import (
	"slices"
	"strings"
	"testing"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, namespace: system}
spec:
  selector: {}
  template:
    spec:
      serviceAccountName: runner
      containers:
        - name: controller
          args: [--one=1, --two]
          env:
            - {name: PLAIN, value: text}
            - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
            - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
            - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
            - {name: WHOLE_CPUS, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: "1"}}}
          resources: {limits: {memory: 1Ki}, requests: {cpu: 1700m}}
`

func invoke(t *testing.T, rendered string) (Invocation, error) {
	t.Helper()
	manifests, err := parse([]byte(rendered))
	if err != nil {
		t.Fatal(err)
	}
	return ControllerInvocation(manifests)
}

func TestInvocationIsWhatAKubeletWouldRun(t *testing.T) {
	got, err := invoke(t, "# Source: x\n"+deployment+"---\n# nothing\n")
	if err != nil {
		t.Fatal(err)
	}
	if got.Namespace != "system" || got.ServiceAccount != "runner" {
		t.Errorf("it runs as %s/%s", got.Namespace, got.ServiceAccount)
	}
	if want := []string{"--one=1", "--two"}; !slices.Equal(got.Args, want) {
		t.Errorf("arguments are %q, want %q", got.Args, want)
	}
	want := []string{"PLAIN=text", "NAMESPACE=system", "MEMORY=1024", "CPU=1700", "WHOLE_CPUS=2"}
	if !slices.Equal(got.Env, want) {
		t.Errorf("environment is %q, want %q", got.Env, want)
	}
}

func TestInvocationRefusesWhatAProcessCannotHave(t *testing.T) {
	for name, test := range map[string]struct{ old, new, want string }{
		"volume":       {"      containers:", "      volumes: [{name: data}]\n      containers:", `volume "data"`},
		"second":       {"      containers:", "      containers:\n        - name: sidecar", "2 containers"},
		"secret":       {"value: text", "valueFrom: {secretKeyRef: {name: s, key: k}}", "PLAIN: its source is known to a kubelet only"},
		"limit":        {"memory: 1Ki", "cpu: 1", "no limits.memory"},
		"typo":         {"serviceAccountName", "serviceAcountName", `unknown field "spec.template.spec.serviceAcountName"`},
		"two":          {"apiVersion: apps/v1", deployment + "---\napiVersion: apps/v1", "2 Deployments"},
		"none":         {"- name: controller", "- name: other", "0 Deployments"},
		"from objects": {"          env:", "          envFrom: [{}]\n          env:", "from other objects"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := invoke(t, strings.Replace(deployment, test.old, test.new, 1))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestInvocationsAreToldApartByTheirContainers(t *testing.T) {
	hollow := strings.NewReplacer("name: controller", "name: hollow", "runner", "player").Replace(deployment)
	manifests, err := parse([]byte(deployment + "---\n" + hollow))
	if err != nil {
		t.Fatal(err)
	}
	controller, err := ControllerInvocation(manifests)
	if err != nil || controller.ServiceAccount != "runner" {
		t.Errorf("the controller runs as %q (%v), want runner", controller.ServiceAccount, err)
	}
	agents, err := HollowInvocation(manifests)
	if err != nil || agents.ServiceAccount != "player" {
		t.Errorf("the agents run as %q (%v), want player", agents.ServiceAccount, err)
	}
}
