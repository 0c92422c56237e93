package apis_test

import (
	"fmt"
	"strings"
	"testing"
)

// rtnode is an RTNode with one server on cores and one plan.
func rtnode(cores, plan string) string {
	return fmt.Sprintf(`{apiVersion: mckube.io/v1alpha1, kind: RTNode, metadata: {generateName: test-}, spec: {
  servers: [{podUID: a, namespace: default, pod: p, container: c, criticality: High, periodUs: 10000, deadlineUs: 10000, budgetLowUs: 1000, budgetHighUs: 2000, cores: %s}],
  plan: [{test: T1, %s}]}}`, cores, plan)
}

// What an agent would have to leave out, the API server refuses. Each refused RTNode is beside one that differs from it in
// the bound at hand only.
func TestRTNodeBounds(t *testing.T) {
	const cores, plan = "[1]", "core: 1, thresholdPpm: 900000"
	for _, tc := range []struct{ good, bad, want string }{
		{rtnode("[0]", plan), rtnode("[-1]", plan), "spec.servers[0].cores[0]: Invalid value: -1"},
		{rtnode("[1, 1023]", plan), rtnode("[1, 1024]", plan), "spec.servers[0].cores[1]: Invalid value: 1024"},
		{rtnode(cores, "core: 0, thresholdPpm: 1"), rtnode(cores, "core: -3, thresholdPpm: 1"), "spec.plan[0].core: Invalid value: -3"},
		{rtnode(cores, "core: 1023, thresholdPpm: 1"), rtnode(cores, "core: 1024, thresholdPpm: 1"), "spec.plan[0].core: Invalid value: 1024"},
		{rtnode(cores, "core: 1, thresholdPpm: 0"), rtnode(cores, "core: 1, thresholdPpm: -5"), "spec.plan[0].thresholdPpm: Invalid value: -5"},
		{rtnode(cores, "core: 1, thresholdPpm: 1000000"), rtnode(cores, "core: 1, thresholdPpm: 1000001"), "spec.plan[0].thresholdPpm: Invalid value: 1000001"},
		{rtnode(cores, plan+", maxRaised: 0"), rtnode(cores, plan+", maxRaised: -1"), "spec.plan[0].maxRaised: Invalid value: -1"},
	} {
		if _, err := create(t, resource(t, "rtnodes"), tc.good); err != nil {
			t.Errorf("%s: %v", tc.good, err)
		}
		if _, err := create(t, resource(t, "rtnodes"), tc.bad); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that says %q", tc.bad, err, tc.want)
		}
	}
}
