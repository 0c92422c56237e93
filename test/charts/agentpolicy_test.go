package charts_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/heartbeat"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// TestAgentsWriteOfTheirOwnNodeOnly acts with the tokens of agents, as kubelets get them for their pods.
func TestAgentsWriteOfTheirOwnNodeOnly(t *testing.T) {
	p := startPlane(t, localplane.Options{ControllerManager: true})
	p.install(t, release(crdsChart, nil))
	p.expectEstablished(t)
	p.install(t, release(mainChart, agentValues(nil)))
	for _, name := range []string{"mine", "other"} {
		p.apply(t,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a"}, Finalizers: []string{"karpenter.sh/termination"}}},
			&mckubev1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, coreSlice(name))
	}
	mine, nobodys := p.agentOn(t, "mine"), p.agentOn(t, "")

	allowed := map[string]func(client.Client, string) error{
		"status": reports, "slice": publishes, "a further slice": adds, "its annotations": notes("mckube.sdv.com/cpu-usage", "annotations"),
		"its label": notes("mckube.io/rt-backend", "labels"), "its Lease": renews,
	}
	for what, does := range allowed {
		soon(t, func(g gomega.Gomega) { g.Expect(does(mine, "mine")).To(gomega.Succeed(), what) })
	}
	for what, does := range allowed {
		// The policies take effect a moment after they are written.
		soon(t, func(g gomega.Gomega) {
			g.Expect(refusedByPolicy(does(mine, "other"))).To(gomega.Succeed(), what+" of another node")
		})
		soon(t, func(g gomega.Gomega) {
			g.Expect(refusedByPolicy(does(nobodys, "mine"))).To(gomega.Succeed(), what+" without a node")
		})
	}
	for what, does := range map[string]func(client.Client, string) error{
		"another label": notes("zone", "labels"), "another annotation": notes("who/knows", "annotations"), "a taint": taints,
		"a label of the controller's": notes("mckube.io/hardware-class", "labels"), "a price": notes("mckube.io/price-per-hour", "annotations"),
		"a label to an annotation's name": notes("mckube.sdv.com/cpu-usage", "labels"),
		"no finalizers":                   changes(`{"metadata":{"finalizers":null}}`), "another finalizer": changes(`{"metadata":{"finalizers":["karpenter.sh/termination","example.com/x"]}}`),
		"an owner that does not exist": changes(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]}}`),
		"a long annotation":            changes(`{"metadata":{"annotations":{"mckube.io/rt-guarantee":"` + strings.Repeat("x", 1025) + `"}}}`),
		"a slice with a finalizer": func(c client.Client, node string) error {
			s := coreSlice(node)
			s.Name, s.Finalizers = "finalized", []string{"example.com/x"}
			return c.Create(context.Background(), s)
		},
		"a certificate of another signer": requestsCertificate(func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName, r.Spec.Usages = certificatesv1.KubeAPIServerClientSignerName, []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}
		}),
		"a certificate request with a finalizer": requestsCertificate(func(r *certificatesv1.CertificateSigningRequest) {
			r.Finalizers = []string{"example.com/x"}
		}),
		"a certificate request with an annotation": requestsCertificate(func(r *certificatesv1.CertificateSigningRequest) {
			r.Annotations = map[string]string{"a": "b"}
		}),
		"a long certificate request": requestsCertificate(func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(r.Spec.Request)
			block.Headers = map[string]string{"X": strings.Repeat("x", 16<<10)}
			r.Spec.Request = pem.EncodeToMemory(block)
		}),
		"a slice that another object owns": func(c client.Client, node string) error {
			s := coreSlice(node)
			s.Name, s.OwnerReferences = "owned", []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
			return c.Create(context.Background(), s)
		},
		"a Lease with a finalizer": func(c client.Client, node string) error {
			l := heartbeat.Lease(node, "uid-of-"+types.UID(node), time.Now())
			l.Finalizers = []string{"example.com/x"}
			return c.Create(context.Background(), l)
		},
		"a Lease that another object owns": func(c client.Client, node string) error {
			l := heartbeat.Lease(node, "uid-of-"+types.UID(node), time.Now())
			l.OwnerReferences[0].Kind, l.OwnerReferences[0].Name = "Node", "other"
			return c.Create(context.Background(), l)
		},
	} {
		if err := refusedByPolicy(does(mine, "mine")); err != nil {
			t.Errorf("%s of its own node: %v", what, err)
		}
	}
	expectMetadataStays(t, p, mine)
	expectNoLeaseOfAKubelet(t, p, mine)
	foreign := coreSlice("other")
	if err := refusedByPolicy(mine.Delete(t.Context(), foreign)); err != nil {
		t.Errorf("deleting another node's slice: %v", err)
	}
	if err := mine.Delete(t.Context(), coreSlice("mine")); err != nil {
		t.Errorf("deleting its own slice: %v", err)
	}
}

// agentOn is an agent's client with a token of its pod.
func (p plane) agentOn(t *testing.T, node string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(p.RESTConfig())
	config.BearerToken = p.tokenOn(t, node)
	c, err := client.New(config, client.Options{Scheme: p.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tokenOn is a token that is bound to an agent's pod, and so to its node; without a node it is bound to nothing.
func (p plane) tokenOn(t *testing.T, node string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mainspring-agent"}}
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent-on-" + node}, Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account.Name, Containers: []corev1.Container{{Name: "agent", Image: "agent:1"}},
		}}
		if err := p.client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	if err := p.client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// refusedByPolicy is nil for an error of the chart's policies.
func refusedByPolicy(err error) error {
	switch {
	case err == nil:
		return errAllowed
	case strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'mainspring-agent-"):
		return nil
	}
	return err
}

var errAllowed = errors.New("it was allowed")

func coreSlice(node string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-cores"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: mckubev1alpha1.DriverCPU, NodeName: ptr.To(node), Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{rtdra.Device(rt.Core{ID: 1, Sibling: rt.NoSibling, Capacity: 900_000}, "fifo")},
		},
	}
}

func reports(c client.Client, node string) error {
	r := &mckubev1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	return c.Status().Patch(context.Background(), r, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"agentVersion":"`+node+`"}}`)))
}

func publishes(c client.Client, node string) error {
	s := coreSlice(node)
	s.Spec.Pool.Generation = 2
	current := &resourcev1.ResourceSliceList{}
	if err := c.List(context.Background(), current); err != nil {
		return err
	}
	for _, there := range current.Items {
		if there.Name == s.Name {
			s.ResourceVersion = there.ResourceVersion
		}
	}
	return c.Update(context.Background(), s)
}

func adds(c client.Client, node string) error {
	s := coreSlice(node)
	s.Name, s.GenerateName = "", node+"-"
	return c.Create(context.Background(), s)
}

func notes(key, where string) func(client.Client, string) error {
	return func(c client.Client, node string) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return c.Patch(context.Background(), n, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"`+where+`":{"`+key+`":"x"}}}`)))
	}
}

func taints(c client.Client, node string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	return c.Patch(context.Background(), n, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`)))
}

// changes patches a Node.
func changes(patch string) func(client.Client, string) error {
	return func(c client.Client, node string) error {
		return c.Patch(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

// expectMetadataStays expects that an agent cannot change the metadata of an RTNode by its status, which has what the controller was asked for.
func expectMetadataStays(t *testing.T, p plane, agent client.Client) {
	t.Helper()
	r := &mckubev1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	patch := `{"metadata":{"annotations":{"mckube.io/asked":"{}"},"labels":{"x":"y"},"finalizers":["example.com/x"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]},"status":{"agentVersion":"new"}}`
	if err := agent.Status().Patch(t.Context(), r.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Fatal(err)
	}
	if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
		t.Fatal(err)
	}
	if len(r.Annotations) > 0 || len(r.Labels) > 0 || len(r.Finalizers) > 0 || len(r.OwnerReferences) > 0 {
		t.Errorf("an agent has changed the metadata of its RTNode: %+v", r.ObjectMeta)
	}
}

// renews writes the Lease of a node's agent, which may not be there yet.
func renews(c client.Client, node string) error {
	l := heartbeat.Lease(node, "uid-of-"+types.UID(node), time.Now())
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	err = c.Patch(context.Background(), l.DeepCopy(), client.RawPatch(types.MergePatchType, data))
	if apierrors.IsNotFound(err) {
		return c.Create(context.Background(), l)
	}
	return err
}

// expectNoLeaseOfAKubelet expects that an agent may neither make nor change what a kubelet lives by.
func expectNoLeaseOfAKubelet(t *testing.T, p plane, agent client.Client) {
	t.Helper()
	for _, node := range []string{"mine", "other"} {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: heartbeat.Namespace, Name: node}}
		p.apply(t, l.DeepCopy())
		soon(t, func(g gomega.Gomega) {
			g.Expect(refusedByPolicy(agent.Create(context.Background(), l.DeepCopy()))).To(gomega.Succeed(), "making the Lease of kubelet "+node)
		})
		change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"agent"}}`))
		soon(t, func(g gomega.Gomega) {
			g.Expect(refusedByPolicy(agent.Patch(context.Background(), l.DeepCopy(), change))).To(gomega.Succeed(), "changing the Lease of kubelet "+node)
		})
	}
}

// TestAgentsReachNoKubeletsLease: not even those that are not kept to their own node.
func TestAgentsReachNoKubeletsLease(t *testing.T) {
	p := startPlane(t, localplane.Options{ControllerManager: true})
	p.install(t, release(crdsChart, nil))
	p.expectEstablished(t)
	p.install(t, release(mainChart, agentValues(object{"restrictToOwnNode": false})))
	p.apply(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine"}})
	mine := p.agentOn(t, "mine")
	expectNoLeaseOfAKubelet(t, p, mine)
	soon(t, func(g gomega.Gomega) { g.Expect(renews(mine, "other")).To(gomega.Succeed()) })
}

// TestAgentsReportTheirOwnSideOnly: by what a side says of a certificate, archives are given out.
func TestAgentsReportTheirOwnSideOnly(t *testing.T) {
	p := startPlane(t, localplane.Options{ControllerManager: true})
	p.install(t, release(crdsChart, nil))
	p.expectEstablished(t)
	p.install(t, release(mainChart, agentValues(object{"checkpoint": object{"enabled": true}})))
	nc := &mckubev1alpha1.NodeCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: "nc"}, Spec: mckubev1alpha1.NodeCheckpointSpec{
		PodNamespace: "default", PodName: "p", PodUID: "u", Containers: []mckubev1alpha1.CheckpointedContainer{{Name: "app"}},
		SourceNode: "mine", TargetNode: "other", Stage: mckubev1alpha1.StageCheckpoint, Expires: metav1.Now(),
	}}
	for _, name := range []string{"mine", "other", "third"} {
		p.apply(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	p.apply(t, nc)
	report := func(c client.Client, side string) error {
		patch := `{"status":{"` + side + `":{"state":"Working","message":"` + rand.Text() + `"}}}`
		return c.Status().Patch(t.Context(), nc.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	mine, other, third := p.agentOn(t, "mine"), p.agentOn(t, "other"), p.agentOn(t, "third")
	for _, tc := range []struct {
		who  client.Client
		side string
	}{{mine, "source"}, {other, "target"}} {
		soon(t, func(g gomega.Gomega) { g.Expect(report(tc.who, tc.side)).To(gomega.Succeed(), tc.side) })
	}
	for what, tc := range map[string]struct {
		who  client.Client
		side string
	}{
		"the source's of the target": {mine, "target"}, "the target's of the source": {other, "source"},
		"a stranger's of the source": {third, "source"}, "a stranger's of the target": {third, "target"}, "nobody's": {p.agentOn(t, ""), "source"},
	} {
		soon(t, func(g gomega.Gomega) { g.Expect(refusedByPolicy(report(tc.who, tc.side))).To(gomega.Succeed(), what) })
	}
	if err := mine.Patch(t.Context(), nc.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"stage":"Release"}}`))); !apierrors.IsForbidden(err) {
		t.Errorf("an agent that changes the stage: %v", err)
	}
}
