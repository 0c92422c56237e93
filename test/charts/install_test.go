package charts_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenter "sigs.k8s.io/karpenter/pkg/apis"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

const faultDefinition = "simulatedfaults.mckube.io"

// TestChartsInstallUpgradeAndUninstall leads both charts through the life of a release.
func TestChartsInstallUpgradeAndUninstall(t *testing.T) {
	p := startPlane(t, localplane.Options{})
	notes := p.install(t, release(mainChart, nil))
	if !strings.Contains(notes, "The definitions are missing in this cluster") {
		t.Errorf("the notes do not tell that the definitions are missing:\n%s", notes)
	}

	older := release(olderDefinitions(t), nil)
	older.Name = "mainspring-crds"
	p.expectHandOver(t, older)
	p.install(t, older)
	p.expectShortName(t, "olderfault")
	p.install(t, release(crdsChart, nil))
	p.expectShortName(t, "simf")
	p.expectEstablished(t)

	filled := p.fillWebhooks(t)
	notes = p.install(t, release(mainChart, values("debug", "settings", "logLevel")))
	p.expectWebhooksFilled(t, filled)
	if strings.Contains(notes, "missing") || !strings.Contains(notes, "rollout status deployment/mainspring") {
		t.Errorf("the notes are:\n%s", notes)
	}
	if d := p.deployment(t); !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--log-level=debug") || *d.Spec.Replicas != 2 {
		t.Errorf("the upgrade left %d replicas with %q", *d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Args)
	}
	const wait = "kubectl get nodecheckpoints"
	for _, with := range []bool{false, true} {
		chosen := object{"agent": object{"enabled": true, "checkpoint": object{"enabled": with}}}
		if notes = p.install(t, release(mainChart, chosen)); strings.Contains(notes, wait) != with {
			t.Errorf("checkpointing %t: the notes are:\n%s", with, notes)
		}
	}

	pool := test.NodePool("keep-me")
	p.apply(t, test.NodeClass(), pool)
	for _, r := range []chart.Release{release(mainChart, nil), release(crdsChart, nil)} {
		if err := p.helm.Uninstall(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	p.expectUninstalled(t)
	p.expectEstablished(t)
	if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
		t.Errorf("a user's NodePool went with the release: %v", err)
	}
	p.install(t, release(crdsChart, nil))
	p.install(t, release(mainChart, nil))
}

// fillWebhooks does what the controller does with the Secret and the configurations.
func (p plane) fillWebhooks(t *testing.T) map[string][]byte {
	t.Helper()
	data, _, err := certs.Authority{DNSNames: []string{"localhost"}, Validity: time.Hour}.Renew(nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	secret, mutating, governed := p.webhooks(t)
	secret.Data = data
	mutating.Webhooks[0].ClientConfig.CABundle = certs.Bundle(data)
	entry := *mutating.Webhooks[0].DeepCopy()
	entry.Name = "entry.governed.mckube.io"
	governed.Webhooks = append(governed.Webhooks, entry)
	for _, o := range []client.Object{secret, mutating, governed} {
		if err := p.client.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// expectWebhooksFilled asserts that an upgrade takes none of that away: until the controller has put it back,
// every real-time pod would be refused.
func (p plane) expectWebhooksFilled(t *testing.T, data map[string][]byte) {
	t.Helper()
	secret, mutating, governed := p.webhooks(t)
	if !bytes.Equal(secret.Data[certs.KeyCert], data[certs.KeyCert]) {
		t.Error("the upgrade took the certificate away")
	}
	if !bytes.Equal(mutating.Webhooks[0].ClientConfig.CABundle, certs.Bundle(data)) {
		t.Error("the upgrade took the bundle away")
	}
	if len(governed.Webhooks) != 1 {
		t.Error("the upgrade took the entries of governed pods away")
	}
}

func (p plane) webhooks(t *testing.T) (*corev1.Secret, *admissionv1.MutatingWebhookConfiguration, *admissionv1.MutatingWebhookConfiguration) {
	t.Helper()
	secret, mutating, governed := &corev1.Secret{}, &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}
	for key, o := range map[client.ObjectKey]client.Object{
		{Namespace: namespace, Name: "mainspring-webhook"}: secret,
		{Name: "mainspring"}:          mutating,
		{Name: "mainspring-governed"}: governed,
	} {
		if err := p.client.Get(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}
	}
	return secret, mutating, governed
}

// expectHandOver has a definition in the cluster already, as a user of Karpenter has, and asserts that
// helm refuses to take it until it is handed over as the chart's README says.
func (p plane) expectHandOver(t *testing.T, r chart.Release) {
	t.Helper()
	if err := p.ApplyCRDs(t.Context(), karpenter.NodePoolCRD); err != nil {
		t.Fatal(err)
	}
	_, err := p.helm.Install(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
		t.Errorf("taking over a definition: %v", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: "nodepools.karpenter.sh"}, crd); err != nil {
		t.Fatal(err)
	}
	stored := crd.DeepCopy()
	crd.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	crd.Annotations["meta.helm.sh/release-name"] = r.Name
	crd.Annotations["meta.helm.sh/release-namespace"] = r.Namespace
	if err := p.client.Patch(t.Context(), crd, client.MergeFrom(stored)); err != nil {
		t.Fatal(err)
	}
}

// olderDefinitions is the chart as an earlier release might have been.
func olderDefinitions(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mainspring-crds")
	if err := os.CopyFS(dir, os.DirFS(crdsChart)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "files", "mckube.io_simulatedfaults.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(data), "- simf\n", "- olderfault\n", 1)
	if changed == string(data) {
		t.Fatalf("%s has no short name simf", file)
	}
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (p plane) expectShortName(t *testing.T, want string) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Name: faultDefinition}, crd); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(crd.Spec.Names.ShortNames, []string{want}) {
		t.Errorf("short names are %q, want %q", crd.Spec.Names.ShortNames, want)
	}
}

func (p plane) expectEstablished(t *testing.T) {
	t.Helper()
	want := len(definitions(t))
	soon(t, func(g gomega.Gomega) {
		crds := &apiextensionsv1.CustomResourceDefinitionList{}
		g.Expect(p.client.List(t.Context(), crds)).To(gomega.Succeed())
		g.Expect(crds.Items).To(gomega.HaveLen(want))
		for _, crd := range crds.Items {
			established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			})
			g.Expect(established).To(gomega.BeTrue(), crd.Name)
		}
	})
}

func (p plane) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "mainspring"}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// expectUninstalled asserts that nothing which could act or allow is left, and what an API server must not see taken away is.
func (p plane) expectUninstalled(t *testing.T) {
	t.Helper()
	err := p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "mainspring"}, &appsv1.Deployment{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment is still there: %v", err)
	}
	own := client.MatchingLabels{"app.kubernetes.io/instance": "mainspring"}
	for _, objects := range []client.ObjectList{
		&admissionv1.MutatingWebhookConfigurationList{}, &admissionv1.ValidatingWebhookConfigurationList{},
		&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
	} {
		if err := p.client.List(t.Context(), objects, own); err != nil {
			t.Fatal(err)
		}
		if left := meta.LenList(objects); left != 0 {
			t.Errorf("%d objects of %T are left", left, objects)
		}
	}
	for _, o := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
		if err := p.client.Get(t.Context(), client.ObjectKey{Name: "mainspring-heirs"}, o); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
}
