package environment

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpenterv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// cleanEvery is how often is looked whether the cluster is clean: each time is a list of every kind that is not.
const cleanEvery = 500 * time.Millisecond

// cleaned lists what a spec may leave behind, in the order in which it is deleted: first what holds
// up the end of pods, then what makes pods, pods, and what makes nodes.
func (env *Environment) cleaned() []client.ObjectList {
	all := []client.ObjectList{
		&policyv1.PodDisruptionBudgetList{},
		&mckubev1alpha1.SimulatedFaultList{},
		&kcloudv1alpha1.WorkloadOptimizerList{}, &kcloudv1alpha1.CostPolicyList{}, &kcloudv1alpha1.PowerPolicyList{},
		&karpenterv1alpha1.NodeOverlayList{},
		&mckubev1alpha1.NodeCheckpointList{},
		&appsv1.DeploymentList{},
		&appsv1.StatefulSetList{},
		&appsv1.DaemonSetList{},
		&appsv1.ReplicaSetList{},
		&batchv1.JobList{},
		&corev1.PodList{},
		&mcoperatorv1.McKubeList{},
		&mckubev1alpha1.PodMigrationList{},
		&mckubev1alpha1.MigrationPolicyList{},
		&mckubev1alpha1.RTActionList{},
		&mckubev1alpha1.NodeCheckpointList{},
		&resourcev1.ResourceClaimTemplateList{},
		&resourcev1.ResourceClaimList{},
		&karpenterv1.NodePoolList{},
		&karpenterv1.NodeClaimList{},
		&kwokv1alpha1.KWOKNodeClassList{},
		&mckubev1alpha1.InventoryMachineList{},
		&nodeclass.InventoryNodeClassList{},
	}
	if env.Node == nil { // a real one stays
		all = append(all, &corev1.NodeList{}, &resourcev1.ResourceSliceList{})
	}
	return all
}

// collected lists what must go by itself, with what owns it.
func (env *Environment) collected() []client.ObjectList {
	if env.Node != nil {
		return nil
	}
	return []client.ObjectList{&mckubev1alpha1.RTNodeList{}}
}

// ExpectClean deletes everything a spec has left, and expects it to be gone. The controller has to
// run for that: nodes end only when it lets them. What does not go is named, and then taken away by
// force, so that it does not fail the next spec too.
func (env *Environment) ExpectClean() {
	GinkgoHelper()
	if !env.Controller.Running() {
		Expect(env.Controller.Start(env, env.defaults...)).To(Succeed())
	}
	var left []client.Object
	var kinds []cleanedList
	round := 0
	gone := InterceptGomegaFailure(func() {
		Eventually(func(g Gomega) {
			if round++; round%5 == 1 { // of other kinds something may have been made meanwhile, which keeps the rest
				kinds = env.lists()
			}
			kinds, left = env.deleteAll(g, kinds)
			if len(left) == 0 {
				kinds, left = env.deleteAll(g, env.lists())
			}
			g.Expect(names(left)).To(BeEmpty())
		}).WithPolling(cleanEvery).Should(Succeed())
	})
	if gone != nil {
		env.report()
		for _, o := range left {
			env.takeAway(o)
		}
		Fail(fmt.Sprintf("the cluster did not become clean: %s", strings.Join(names(left), ", ")))
	}
}

// cleanedList is a kind of objects that must go: deleted by the spec's end, or collected with their owners.
type cleanedList struct {
	client.ObjectList
	collected bool
}

func (env *Environment) lists() []cleanedList {
	var all []cleanedList
	for _, list := range env.cleaned() {
		all = append(all, cleanedList{ObjectList: list})
	}
	for _, list := range env.collected() {
		all = append(all, cleanedList{ObjectList: list, collected: true})
	}
	return all
}

// deleteAll asks all objects of the lists to go. It returns the lists that are not empty yet, and what they hold.
func (env *Environment) deleteAll(g Gomega, lists []cleanedList) (pending []cleanedList, left []client.Object) {
	for _, list := range lists {
		g.Expect(env.Client.List(env, list.ObjectList)).To(Succeed())
		before := len(left)
		g.Expect(meta.EachListItem(list.ObjectList, func(item runtime.Object) error {
			o := item.(client.Object).DeepCopyObject().(client.Object) // the list is read again
			left = append(left, o)
			if list.collected || !o.GetDeletionTimestamp().IsZero() && !isPod(o) {
				return nil
			}
			return client.IgnoreNotFound(env.Client.Delete(env, o, client.PropagationPolicy(metav1.DeletePropagationBackground), env.grace(o)))
		})).To(Succeed())
		if len(left) > before {
			pending = append(pending, list)
		}
	}
	return pending, left
}

func isPod(o client.Object) bool { _, ok := o.(*corev1.Pod); return ok }

// grace makes pods end at once where their kubelets are simulated: nothing runs in them.
func (env *Environment) grace(o client.Object) client.DeleteOption {
	if isPod(o) && env.Node == nil {
		return client.GracePeriodSeconds(0)
	}
	return &client.DeleteOptions{}
}

func (env *Environment) takeAway(o client.Object) {
	GinkgoHelper()
	before := o.DeepCopyObject().(client.Object)
	o.SetFinalizers(nil)
	Expect(client.IgnoreNotFound(env.Client.Patch(env, o, client.MergeFrom(before)))).To(Succeed())
	Expect(client.IgnoreNotFound(env.Client.Delete(env, o))).To(Succeed())
}

func names(objects []client.Object) []string {
	var list []string
	for _, o := range objects {
		list = append(list, fmt.Sprintf("%T %s", o, o.GetName()))
	}
	return list
}

// ExpectReset ends what the scenario has built so far, so that another can begin in the same spec.
func (env *Environment) ExpectReset() {
	GinkgoHelper()
	env.ExpectClean()
	env.expectStanding()
}

// expectStanding puts into the cluster what every scenario finds there.
func (env *Environment) expectStanding() {
	GinkgoHelper()
	for _, o := range env.standing {
		env.ExpectApplied(o.DeepCopyObject().(client.Object))
	}
}
