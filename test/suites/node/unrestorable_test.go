package node_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// settings is a ConfigMap, and where containers have its only file.
const settings, settingsFile = "settings", "/settings/file"

// holding has the container keep a file of a ConfigMap open. CRIU writes down where that was: in a directory of the kubelet's whose name has the time
// at which it was made. Its restoration looks for it there, and fails, as another pod's kubelet made another.
func holding(spec *corev1.PodSpec) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: settings, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: settings}},
	}})
	app := &spec.Containers[0]
	app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: settings, MountPath: "/settings"})
	app.Args = append(app.Args, "--hold="+settingsFile)
}

// eventuallyBrought expects the state to come to the target whole, so that what fails after it is its restoration.
func eventuallyBrought(pm *mckubev1alpha1.PodMigration) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(pm), pm)).To(Succeed())
		nc := &mckubev1alpha1.NodeCheckpoint{}
		g.Expect(env.Client.Get(env, client.ObjectKey{Name: pm.Status.Action}, nc)).To(Succeed())
		g.Expect(nc.Status.Target).NotTo(BeNil())
		g.Expect(nc.Status.Target.State).To(Equal(mckubev1alpha1.CheckpointTransferred), nc.Status.Target.Message)
	}).WithPolling(20*time.Millisecond).Should(Succeed(), pm.Status.Message)
}

var _ = Describe("A state that the runtime cannot restore", Serial, Ordered, func() {
	BeforeAll(func() {
		_, agent := env.ExpectSecondNode()
		env.NodeAgent.ExpectRunning()
		agent.ExpectRunning()
		eventuallyCapable()
	})

	BeforeEach(func() {
		env.ExpectApplied(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: settings}, Data: map[string]string{"file": "held"}})
	})

	It("leaves its pod where it is, which runs on", func() {
		p := counting("unrestored", environment.RealNodeName)
		holding(&p.Spec)
		first := expectCounting(p)
		pm := migration(p, environment.SecondNodeName)
		Expect(env.Client.Create(env, pm)).To(Succeed())
		eventuallyBrought(pm)
		eventuallyOver(pm, mckubev1alpha1.MigrationRolledBack)
		Expect(pm.Status.Message).To(And(ContainSubstring("container app of pod default/unrestored"), ContainSubstring("cannot be made of its state: StartError: "), ContainSubstring("criu failed: type RESTORE")))
		eventuallyItself(p, first)
		Eventually(func() []string { return archives(env.Node) }).Should(BeEmpty())
		pods := &corev1.PodList{}
		Expect(env.Client.List(env, pods, client.InNamespace(p.Namespace))).To(Succeed())
		Expect(pods.Items).To(HaveLen(1), "nothing is left of the copy")
		Expect(pods.Items[0].UID).To(Equal(p.UID))
		Expect(pods.Items[0].Status.ContainerStatuses[0].RestartCount).To(BeZero())
		AddReportEntry("migration", "rolled back: "+pm.Status.Message, ReportEntryVisibilityAlways)
	})

	It("is lost with a StatefulSet's pod, whose source has to end first: the pod begins anew, and the migration says so", func() {
		template := countingTemplate("unrestored-set")
		holding(&template.Spec)
		cordoned(environment.SecondNodeName, true)
		env.ExpectApplied(&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unrestored-set"},
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "unrestored-set"}}, Template: template},
		})
		p, first := answering("unrestored-set", environment.RealNodeName)
		cordoned(environment.SecondNodeName, false)
		pm := migration(p, environment.SecondNodeName)
		Expect(env.Client.Create(env, pm)).To(Succeed())
		eventuallyBrought(pm)
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(pm), pm)).To(Succeed())
			g.Expect(pm.Status.Phase.Over()).To(BeTrue(), pm.Status.Message)
		}).Should(Succeed())
		condition := meta.FindStatusCondition(pm.Status.Conditions, "State")
		Expect(condition).NotTo(BeNil())
		Expect(*condition).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "RestoreFailed"), HaveField("Message", ContainSubstring("criu"))))
		node := environment.SecondNodeName
		if pm.Status.Phase != mckubev1alpha1.MigrationSucceededWithoutState {
			Expect(pm.Status.Phase).To(Equal(mckubev1alpha1.MigrationFailed), "a pod that came back to its node is no migration")
			node = environment.RealNodeName
		}
		_, after := answering("unrestored-set", node)
		Expect(after.Self).NotTo(Equal(first.Self), "it is the program anew")
		Eventually(func() []string { return archives(env.Node) }).Should(BeEmpty())
		AddReportEntry("migration", string(pm.Status.Phase)+": "+pm.Status.Message, ReportEntryVisibilityAlways)
	})
})
