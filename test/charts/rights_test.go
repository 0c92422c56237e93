package charts_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// unexercised are rights that the scenario does not need, and why the chart gives them.
var unexercised = map[right]string{
	{"update", "karpenter.sh", "nodepools/finalizers", ""}:      "only the admission plugin OwnerReferencesPermissionEnforcement asks for it",
	{"update", "karpenter.sh", "nodeclaims/finalizers", ""}:     "only the admission plugin OwnerReferencesPermissionEnforcement asks for it",
	{"update", "resource.k8s.io", "resourceclaims/binding", ""}: "asked for within requests for resourceclaims/status, so the log does not name it",
	{"delete", "mckube.io", "rtnodes", ""}:                      "done where one is left of an earlier Node of its name",
	{"delete", "resource.k8s.io", "resourceclaimtemplates", ""}: "done minutes after a McKube has changed",
	{"delete", "resource.k8s.io", "resourceslices", ""}:         "done where a node has fewer slices than it had",
	{"get", "mckube.io", "rtactions", ""}:                       "done where an action changes otherwise than by the queue",
	{"create", "mckube.io", "rtactions", ""}:                    "done for each preemption",
	{"patch", "mckube.io", "rtactions", ""}:                     "done where an action is over",
	{"delete", "mckube.io", "rtactions", ""}:                    "done minutes after an action is over",
	{"update", "mckube.io", "rtactions/status", ""}:             "done for each step of an action",
	{"get", "", "pods", ""}:                                     "done while an action runs",
	{"get", "", "nodes", ""}:                                    "done where the cache has lost the node of an action",
	{"get", "mckube.io", "rtnodes", ""}:                         "done while a move between cores is undone",
	{"get", "apps", "replicasets", ""}:                          "done for each migration",
	{"get", "apps", "statefulsets", ""}:                         "done for each migration",
	{"get", "", "replicationcontrollers", ""}:                   "done for each migration",
	{"get", "apps", "deployments", ""}:                          "done for each PodMigration of a ReplicaSet's pod",
	{"get", "batch", "jobs", ""}:                                "done for each PodMigration of a Job's pod",
	{"create", "", "pods", ""}:                                  "done for each PodMigration with strategy Surge or Checkpoint",
	{"get", "mckube.io", "podmigrations", ""}:                   "done where the cache is behind",
	{"create", "mckube.io", "podmigrations", ""}:                "done for each migration of the ladder",
	{"patch", "mckube.io", "podmigrations", ""}:                 "done for each PodMigration",
	{"delete", "mckube.io", "podmigrations", ""}:                "done an hour after a PodMigration is over",
	{"patch", "mckube.io", "podmigrations/status", ""}:          "done for each PodMigration",
	{"get", "", "podtemplates", ""}:                             "done for each PodMigration with strategy Checkpoint of a StatefulSet's or Job's pod",
	{"create", "", "podtemplates", ""}:                          "done for each PodMigration with strategy Checkpoint of a StatefulSet's or Job's pod",
	{"patch", "", "podtemplates", ""}:                           "done for each PodMigration with strategy Checkpoint of a StatefulSet's or Job's pod",
	{"delete", "", "podtemplates", ""}:                          "done for each PodMigration with strategy Checkpoint of a StatefulSet's or Job's pod",
	{"get", "mckube.io", "nodecheckpoints", ""}:                 "done for each PodMigration with strategy Checkpoint",
	{"create", "mckube.io", "nodecheckpoints", ""}:              "done for each PodMigration with strategy Checkpoint",
	{"patch", "mckube.io", "nodecheckpoints", ""}:               "done for each PodMigration with strategy Checkpoint",
	{"delete", "mckube.io", "nodecheckpoints", ""}:              "done for each PodMigration with strategy Checkpoint",
	{"patch", "events.k8s.io", "events", ""}:                    "done where the same Event comes again",
	{"list", "", "replicationcontrollers", ""}:                  "read for pods that a ReplicationController owns",
	{"watch", "", "replicationcontrollers", ""}:                 "read for pods that a ReplicationController owns",
	{"list", "metrics.k8s.io", "nodes", ""}:                     "only where somebody serves metrics.k8s.io",
	{"list", "metrics.k8s.io", "pods", ""}:                      "only for nodes under resource pressure",
	{"patch", "", "nodes/status", ""}:                           "done where a node comes under resource pressure",
	{"approve", "certificates.k8s.io", "signers", ""}:           "asked for within requests for certificatesigningrequests/approval, so the log does not name it",
	{"sign", "certificates.k8s.io", "signers", ""}:              "asked for within requests for certificatesigningrequests/status, so the log does not name it",
	{"update", "mcoperator.sdv.com", "mckubes/finalizers", ""}:  "only the admission plugin OwnerReferencesPermissionEnforcement asks for it",
}

// TestRightsAreEnoughAndNeeded runs the controller and the agents of simulated nodes as the ServiceAccounts
// that the chart creates, with the arguments and the environment of their Deployments, through a small
// life of a cluster. No request may be refused, and no right may be left over.
func TestRightsAreEnoughAndNeeded(t *testing.T) {
	log, arguments := newAudit(t)
	p := startPlane(t, localplane.Options{
		Scheduler: true, ControllerManager: true, Kwok: true,
		APIServerArgs: arguments, NodeMonitorGracePeriod: 8 * time.Second,
	})
	ports := freePorts(t, 5)
	metricsPort := ports[0]
	more := object{
		"webhook":     object{"port": ports[2]},
		"hollow":      object{"healthProbePort": ports[3]},
		"overrun":     object{"enabled": true, "port": ports[4]},
		"metrics":     object{"port": metricsPort, "readers": list{object{"name": "prometheus", "namespace": "default"}}},
		"healthProbe": object{"port": ports[1]},
	}
	p.install(t, release(crdsChart, nil))
	p.expectEstablished(t)
	p.install(t, release(mainChart, everythingValues(more)))
	manifests := everything(t, more)
	p.reachWebhooksAt(t, ports[2])
	controllerLog := p.runController(t, manifests, "--webhook-dns-names=localhost")
	p.runHollow(t, manifests)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller's last words:\n%s", tail(t, controllerLog))
		}
	})

	p.apply(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prometheus"}}, test.NodeClass())
	p.expectPolicyUsable(t)
	p.expectMetricsOf(t, "mainspring-webhook", metricsPort)
	p.expectAgentCertificates(t)
	endRealtime := p.liveRealtime(t)
	p.expectALease(t)
	sampled := p.collectMetrics(t, metricsPort, "prometheus")
	end := p.live(t)
	endRealtime()
	end()
	expectAlertsHaveData(t, sampled())
	p.scrape(t, metricsPort, "default", http.StatusForbidden)
	p.scrape(t, metricsPort, "", http.StatusUnauthorized)

	for _, user := range []string{controllerUser, hollowUser} {
		log.expectRights(t, user, granted(t, manifests, user), unexercised)
	}
}

// expectPolicyUsable writes a MigrationPolicy and waits until the controller has said that it can be used.
func (p plane) expectPolicyUsable(t *testing.T) {
	t.Helper()
	calm := &mckubev1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "calm"}}
	calm.Spec.Rules = []mckubev1alpha1.MigrationRule{{Name: "not-for-cost", Expression: `trigger == "Cost"`, Action: mckubev1alpha1.RuleDeny}}
	soon(t, func(g gomega.Gomega) { // once the webhook answers
		g.Expect(client.IgnoreAlreadyExists(p.client.Create(t.Context(), calm.DeepCopy()))).To(gomega.Succeed())
	})
	soon(t, func(g gomega.Gomega) {
		now := &mckubev1alpha1.MigrationPolicy{}
		g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(calm), now)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(now.Status.Conditions, "Ready")).To(gomega.BeTrue())
	})
}

// streamed tells that a list was not asked for because this API server streams lists as watches;
// others do not.
func streamed(r right, used map[right]bool) bool {
	watched := r
	watched.verb = "watch"
	return r.verb == "list" && used[watched]
}

// live opens nodes for pods of every kind that reads something else, and breaks three of the nodes.
// What it returns takes the NodePools away and waits until its nodes are gone.
func (p plane) live(t *testing.T) (end func()) {
	t.Helper()
	pool := test.NodePool("main", test.CapacityTypes(karpenterv1.CapacityTypeSpot),
		test.TerminationGracePeriod(10*time.Second), test.Limits(corev1.ResourceCPU, "1000"))
	calm := test.NodePool("calm", test.TerminationGracePeriod(10*time.Second),
		test.NodeTaints(corev1.Taint{Key: "calm", Effect: corev1.TaintEffectNoSchedule}))
	p.apply(t,
		pool, calm,
		test.PriceOverlay("cheaper", "0.01", corev1.LabelTopologyZone, "test-zone-a"),
		test.PodDisruptionBudget("web", 1), test.CoreShare("share", 100_000),
		storageClass(), volume("bound"), volumeClaim("bound", "bound"), volumeClaim("wanted", ""),
	)
	p.apply(t,
		test.Deployment("web", 3, "1", test.ApartFromEachOther(), inAnyNamespace),
		test.DaemonSet("agent", "100m"),
		// It wants more time than its node will have, so it is deleted instead of evicted.
		test.Pod("stubborn", "1", test.DoNotDisrupt(), test.StopsIn(time.Minute),
			test.Tolerates("calm"), test.OnNodes(karpenterv1.NodePoolLabelKey, calm.Name)),
		test.Pod("real-time", "1", test.Claims("share")),
		test.Pod("stateful", "1", withVolume("bound")),
		test.Pod("waits-for-its-volume", "1", withVolume("wanted")),
		buffer("web"),
	)
	p.expectBound(t, "web", 3)
	p.expectCostTold(t, "web")
	p.expectBound(t, "stubborn", 1)
	p.expectBound(t, "stateful", 1)

	reports, silent := failure("reports", "KWOKUnhealthy"), failure("silent", "")
	p.apply(t, reports, silent, interruption())
	soon(t, func(g gomega.Gomega) {
		faults := &mckubev1alpha1.SimulatedFaultList{}
		g.Expect(p.client.List(t.Context(), faults)).To(gomega.Succeed())
		for _, f := range faults.Items {
			g.Expect(f.Status.AffectedCount).To(gomega.BeEquivalentTo(1), f.Name)
		}
	})

	return func() {
		p.delete(t, reports, silent, pool, calm, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "web"}})
		p.expectNoNodes(t)
	}
}

// expectCostTold has a WorkloadOptimizer govern the pods of a workload, and policies count all pods, and waits until
// their status says what they cost and draw.
func (p plane) expectCostTold(t *testing.T, workload string) {
	t.Helper()
	wo, cost, power := test.WorkloadOptimizer(workload), test.CostPolicy("all"), test.PowerPolicy("all")
	p.apply(t, wo, cost, power)
	soon(t, func(g gomega.Gomega) {
		g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(cost), cost)).To(gomega.Succeed())
		g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(power), power)).To(gomega.Succeed())
		g.Expect(cost.Status.CostPerHour).To(gomega.BeNumerically(">", 0))
		g.Expect(power.Status.CurrentPower).To(gomega.BeNumerically(">", 0))
	})
	soon(t, func(g gomega.Gomega) {
		g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(wo), wo)).To(gomega.Succeed())
		g.Expect(wo.Status.CurrentCost).To(gomega.BeNumerically(">", 0))
	})
}

func (p plane) expectNoNodes(t *testing.T) {
	t.Helper()
	soon(t, func(g gomega.Gomega) {
		claims, nodes := &karpenterv1.NodeClaimList{}, &corev1.NodeList{}
		g.Expect(p.client.List(t.Context(), claims)).To(gomega.Succeed())
		g.Expect(p.client.List(t.Context(), nodes)).To(gomega.Succeed())
		g.Expect(len(claims.Items) + len(nodes.Items)).To(gomega.BeZero())
	})
}

func (p plane) expectBound(t *testing.T, workload string, n int) {
	t.Helper()
	soon(t, func(g gomega.Gomega) {
		pods := &corev1.PodList{}
		g.Expect(p.client.List(t.Context(), pods, client.MatchingLabels{test.Label: workload})).To(gomega.Succeed())
		bound := 0
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != "" {
				bound++
			}
		}
		g.Expect(bound).To(gomega.Equal(n), "bound pods of %s", workload)
	})
}

// inAnyNamespace keeps pods apart from those of namespaces that a selector names.
func inAnyNamespace(template *test.PodTemplate) {
	terms := &template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range *terms {
		(*terms)[i].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: test.Namespace}}
	}
}

func withVolume(claim string) func(*test.PodTemplate) {
	return func(template *test.PodTemplate) {
		template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
}

func storageClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "disk"},
		Provisioner:       "disk.example.com",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

// volume is in one zone, and given to the claim of its name.
func volume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:       "disk",
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:               &corev1.ObjectReference{Namespace: test.Namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"test-zone-b"},
				}},
			}}}},
		},
	}
}

// volumeClaim wants the volume; without one it waits until a provisioner makes one.
func volumeClaim(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("disk"),
			VolumeName:       volume,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// buffer keeps room for one more pod of the Deployment.
func buffer(deployment string) *autoscalingv1beta1.CapacityBuffer {
	return &autoscalingv1beta1.CapacityBuffer{
		ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "spare"},
		Spec: autoscalingv1beta1.CapacityBufferSpec{
			ScalableRef: &autoscalingv1beta1.ScalableRef{APIGroup: "apps", Kind: autoscalingv1beta1.KindDeployment, Name: deployment},
			Replicas:    ptr.To(int32(1)),
		},
	}
}

// failure breaks one node: its kubelet reports the condition, or falls silent where that is empty.
func failure(name, condition string) *mckubev1alpha1.SimulatedFault {
	return test.Fault(name, mckubev1alpha1.FaultNodeFailure, func(f *mckubev1alpha1.SimulatedFault) {
		f.Spec.Selector.NodePools = []string{"main"}
		f.Spec.Count, f.Spec.Condition = ptr.To(int32(1)), condition
	})
}

// interruption takes one spot machine away.
func interruption() *mckubev1alpha1.SimulatedFault {
	return test.Fault("interrupted", mckubev1alpha1.FaultSpotInterruption, func(f *mckubev1alpha1.SimulatedFault) {
		f.Spec.Count, f.Spec.Notice = ptr.To(int32(1)), &metav1.Duration{Duration: time.Second}
	})
}
