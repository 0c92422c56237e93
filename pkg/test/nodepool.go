package test

import (
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// NodeClassName is the KWOKNodeClass that NodePools refer to when nothing else is said.
const NodeClassName = "default"

// NodeClass returns a node class whose machines join at once.
func NodeClass(changes ...func(*kwokv1alpha1.KWOKNodeClass)) *kwokv1alpha1.KWOKNodeClass {
	return build(&kwokv1alpha1.KWOKNodeClass{ObjectMeta: metav1.ObjectMeta{Name: NodeClassName}}, changes)
}

// RegistrationDelay makes machines join the cluster that long after their launch.
func RegistrationDelay(d time.Duration) func(*kwokv1alpha1.KWOKNodeClass) {
	return func(c *kwokv1alpha1.KWOKNodeClass) { c.Spec.NodeRegistrationDelay = metav1.Duration{Duration: d} }
}

// Image is the machine image new machines are launched with.
func Image(name string) func(*kwokv1alpha1.KWOKNodeClass) {
	return func(c *kwokv1alpha1.KWOKNodeClass) {
		c.Annotations = lo.Assign(c.Annotations, map[string]string{mckubev1alpha1.AnnotationImage: name})
	}
}

// NodePool returns a pool of on-demand amd64 machines of family c that is never consolidated,
// never expires, and sets disruption no bound.
func NodePool(name string, changes ...func(*karpenterv1.NodePool)) *karpenterv1.NodePool {
	pool := &karpenterv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpenterv1.NodePoolSpec{
			Template: karpenterv1.NodeClaimTemplate{Spec: karpenterv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpenterv1.NodeClassReference{Group: kwokapis.Group, Kind: "KWOKNodeClass", Name: NodeClassName},
				ExpireAfter:  karpenterv1.MustParseNillableDuration("Never"),
			}},
			Disruption: karpenterv1.Disruption{
				ConsolidationPolicy: karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
				ConsolidateAfter:    karpenterv1.MustParseNillableDuration("Never"),
				Budgets:             []karpenterv1.Budget{{Nodes: "100%"}},
			},
		},
	}
	Requires(corev1.LabelArchStable, karpenterv1.ArchitectureAmd64)(pool)
	CapacityTypes(karpenterv1.CapacityTypeOnDemand)(pool)
	Families("c")(pool)
	return build(pool, changes)
}

// Requires restricts the label to the values, replacing what the pool said about it. Without
// values the pool says nothing about the label.
func Requires(label string, values ...string) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		spec := &p.Spec.Template.Spec
		spec.Requirements = lo.Reject(spec.Requirements, func(r karpenterv1.NodeSelectorRequirementWithMinValues, _ int) bool {
			return r.Key == label
		})
		if len(values) > 0 {
			spec.Requirements = append(spec.Requirements, karpenterv1.NodeSelectorRequirementWithMinValues{
				Key: label, Operator: corev1.NodeSelectorOpIn, Values: values,
			})
		}
	}
}

// CapacityTypes restricts how machines are bought: spot, on-demand, reserved.
func CapacityTypes(types ...string) func(*karpenterv1.NodePool) {
	return Requires(karpenterv1.CapacityTypeLabelKey, types...)
}

// Families restricts the families of instance types: c has 2 GiB of memory per CPU, s 4, m 8.
func Families(families ...string) func(*karpenterv1.NodePool) {
	return Requires(kwokv1alpha1.InstanceFamilyLabelKey, families...)
}

// InstanceTypes restricts the instance types by name, of whatever family.
func InstanceTypes(names ...string) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		Families()(p)
		Requires(corev1.LabelInstanceTypeStable, names...)(p)
	}
}

// Zones restricts the zones.
func Zones(zones ...string) func(*karpenterv1.NodePool) {
	return Requires(corev1.LabelTopologyZone, zones...)
}

// HardwareClass offers the pool machines of one class: general, gpu, npu or edge.
func HardwareClass(class string) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		Families()(p)
		Requires(mckubev1alpha1.LabelHardwareClass, class)(p)
	}
}

// Budgets bounds how many nodes may be disrupted at once.
func Budgets(budgets ...karpenterv1.Budget) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) { p.Spec.Disruption.Budgets = budgets }
}

// Budget allows nodes (a number or a percentage) to be disrupted at once, for the reasons or for all.
func Budget(nodes string, reasons ...karpenterv1.DisruptionReason) karpenterv1.Budget {
	return karpenterv1.Budget{Nodes: nodes, Reasons: reasons}
}

// Consolidates sets the policy and the delay ("0s", "1m", "Never").
func Consolidates(policy karpenterv1.ConsolidationPolicy, after string) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		p.Spec.Disruption.ConsolidationPolicy = policy
		p.Spec.Disruption.ConsolidateAfter = karpenterv1.MustParseNillableDuration(after)
	}
}

// ExpireAfter is the age at which nodes are replaced.
func ExpireAfter(age string) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		p.Spec.Template.Spec.ExpireAfter = karpenterv1.MustParseNillableDuration(age)
	}
}

// TerminationGracePeriod is how long pods may hold up the end of a node.
func TerminationGracePeriod(d time.Duration) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: d}
	}
}

// Limits bounds the sum of a resource over the pool's nodes.
func Limits(name corev1.ResourceName, quantity string) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		p.Spec.Limits = lo.Assign(p.Spec.Limits, karpenterv1.Limits{name: resource.MustParse(quantity)})
	}
}

// Weight makes the scheduler prefer the pool over lighter ones; 1 to 100.
func Weight(w int32) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) { p.Spec.Weight = &w }
}

// Replicas makes the pool static: it keeps that many nodes.
func Replicas(n int64) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) { p.Spec.Replicas = &n }
}

// NodeTaints puts taints on the pool's nodes.
func NodeTaints(taints ...corev1.Taint) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) { p.Spec.Template.Spec.Taints = taints }
}

// NodeLabels puts labels on the pool's nodes.
func NodeLabels(labels map[string]string) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		p.Spec.Template.Labels = lo.Assign(p.Spec.Template.Labels, labels)
	}
}
