package charts_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kwok "sigs.k8s.io/karpenter/kwok/apis"
	karpenter "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/mainspring-rt/mainspring/pkg/apis"
	"github.com/mainspring-rt/mainspring/pkg/chart"
)

// kept is the one line that the chart adds to a definition.
const kept = "    helm.sh/resource-policy: keep\n"

func definitions(t *testing.T) chart.Manifests {
	t.Helper()
	manifests, err := helm(t).Template(t.Context(), release(crdsChart, nil))
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

// upstream are Karpenter's definitions as its module carries them.
func upstream() map[string][]byte {
	return map[string][]byte{
		"nodepools.karpenter.sh":               karpenter.NodePoolCRD,
		"nodeclaims.karpenter.sh":              karpenter.NodeClaimCRD,
		"nodeoverlays.karpenter.sh":            karpenter.NodeOverlayCRD,
		"capacitybuffers.autoscaling.x-k8s.io": karpenter.CapacityBufferCRD,
		"kwoknodeclasses.karpenter.kwok.sh":    kwok.KWOKNodeClassCRD,
	}
}

// The two lines by which the chart's definition of NodePools differs from upstream's: budgets take one more reason.
const (
	reasonsTold, reasonsToldMore = "Drifted, and Unhealthy.", "Drifted, Unhealthy, and RTPressure."
	reasonLine                   = "                                - RTPressure\n"
)

func TestDefinitionsAreUpstreamsByteForByteButForOneReason(t *testing.T) {
	rendered := definitions(t)
	for name, want := range upstream() {
		decode[apiextensionsv1.CustomResourceDefinition](t, rendered, "CustomResourceDefinition", name)
		for _, manifest := range rendered {
			if manifest.GetName() != name {
				continue
			}
			got := bytes.Replace(manifest.Source, []byte(kept), nil, 1)
			if name == "nodepools.karpenter.sh" {
				if !bytes.Contains(got, []byte(reasonLine)) {
					t.Errorf("%s does not take reason RTPressure", name)
				}
				got = bytes.Replace(got, []byte(reasonLine), nil, 1)
				got = bytes.Replace(got, []byte(reasonsToldMore), []byte(reasonsTold), 1)
			}
			if !bytes.Equal(plain(got), plain(want)) {
				t.Errorf("%s differs from the module's in more than the annotation", name)
			}
		}
	}
}

// plain drops what separates and locates YAML documents.
func plain(document []byte) []byte {
	_, body, found := bytes.Cut(document, []byte("apiVersion:"))
	if !found {
		return document
	}
	return bytes.TrimSpace(body)
}

func TestEveryDefinitionIsServedAndSurvivesUninstalling(t *testing.T) {
	rendered := definitions(t)
	ours, err := apis.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	if len(rendered) != len(upstream())+len(ours) {
		t.Errorf("the chart renders %d objects, want %d of Karpenter and %d of ours", len(rendered), len(upstream()), len(ours))
	}
	for _, crd := range ours {
		decode[apiextensionsv1.CustomResourceDefinition](t, rendered, "CustomResourceDefinition", crd.Name)
	}
	readme, err := os.ReadFile("../../charts/mainspring-crds/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range rendered {
		// Once in the table, once in the loop that hands them over.
		if n := strings.Count(string(readme), manifest.GetName()); n != 2 {
			t.Errorf("charts/mainspring-crds/README.md names %s %d times, want 2", manifest.GetName(), n)
		}
		if manifest.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s would be deleted with its release, and every object of it", manifest.GetName())
		}
	}
}
