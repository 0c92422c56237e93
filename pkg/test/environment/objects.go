package environment

import (
	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// ExpectApplied creates the objects in order, or replaces what is there of the same name, and reads
// back what the API server made of them. It waits until a NodePool is ready, so that pods applied
// after it need not be tried twice.
func (env *Environment) ExpectApplied(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Eventually(func() error { return env.apply(o) }).Should(Succeed(), "applying %T %s", o, o.GetName())
		if pool, ok := o.(*karpenterv1.NodePool); ok {
			env.eventuallyReady(pool)
		}
	}
}

func (env *Environment) eventuallyReady(pool *karpenterv1.NodePool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
		g.Expect(pool.StatusConditions().Root().IsTrue()).To(BeTrue(), "%v", pool.Status.Conditions)
	}).Should(Succeed(), "NodePool %s should be ready", pool.Name)
}

func (env *Environment) apply(o client.Object) error {
	current := o.DeepCopyObject().(client.Object)
	err := env.Client.Get(env, client.ObjectKeyFromObject(o), current)
	if apierrors.IsNotFound(err) {
		o.SetResourceVersion("")
		o.SetUID("")
		err = env.Client.Create(env, o)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return StopTrying("refused").Wrap(err)
		}
		return err
	}
	if err != nil {
		return err
	}
	o.SetResourceVersion(current.GetResourceVersion())
	return env.Client.Update(env, o)
}

// ExpectRefused expects the API server to refuse the object with a message that contains reason.
func (env *Environment) ExpectRefused(o client.Object, reason string) {
	GinkgoHelper()
	err := env.Client.Create(env, o)
	Expect(err).To(MatchError(apierrors.IsInvalid, "IsInvalid"))
	Expect(err.Error()).To(ContainSubstring(reason))
}

// ExpectDeleted asks the objects to go. It does not wait for it.
func (env *Environment) ExpectDeleted(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		err := env.Client.Delete(env, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
		Expect(client.IgnoreNotFound(err)).To(Succeed())
	}
}

// EventuallyGone expects the objects to be deleted, and finally gone.
func (env *Environment) EventuallyGone(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		copied := o.DeepCopyObject().(client.Object)
		Eventually(func() error { return env.Client.Get(env, client.ObjectKeyFromObject(o), copied) }).
			Should(MatchError(apierrors.IsNotFound, "IsNotFound"), "%T %s should be gone", o, o.GetName())
	}
}

// ExpectChanged applies changes to the newest version of the object. Others may write to it meanwhile.
func ExpectChanged[T client.Object](env *Environment, o T, changes ...func(T)) {
	GinkgoHelper()
	Eventually(func() error {
		if err := env.Client.Get(env, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		for _, change := range changes {
			change(o)
		}
		return env.Client.Update(env, o)
	}).Should(Succeed(), "changing %T %s", o, o.GetName())
}

// ExpectScaled sets the number of replicas of a Deployment.
func (env *Environment) ExpectScaled(d *appsv1.Deployment, replicas int32) {
	GinkgoHelper()
	ExpectChanged(env, d, func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas })
}
