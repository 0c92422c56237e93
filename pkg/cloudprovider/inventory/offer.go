package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// offer makes instance types of machines and hands out the same pointers for as long as nothing changes.
type offer struct {
	names *typeNames

	mu      sync.Mutex
	answers map[string]answer // by name of the node class
}

// answer is what was made, and of what.
type answer struct {
	signature string
	types     []*cloudprovider.InstanceType
}

// maxAnswers bounds the memory for node classes that come and go.
const maxAnswers = 64

// modelKeys are the labels of accelerators' models, which the scheduler always knows.
var modelKeys = []string{v1alpha1.LabelGPUModel, v1alpha1.LabelNPUModel}

// newOffer makes an offer whose instance types define the labels with these keys.
func newOffer(keys []string) *offer {
	return &offer{names: &typeNames{keys: append(slices.Clone(modelKeys), keys...)}, answers: map[string]answer{}}
}

// GetInstanceTypes returns the machines that the NodePool's node class selects, as instance types, those in use
// included. Without a NodePool it returns all.
func (p *Provider) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	class := &nodeclass.InventoryNodeClass{}
	if nodePool != nil {
		var err error
		if class, err = p.nodeClassOf(ctx, nodePool.Spec.Template.Spec.NodeClassRef); err != nil || class == nil {
			return nil, err
		}
	}
	listed, err := selected(ctx, p.Client, class)
	if err != nil {
		return nil, err
	}
	return p.offer.of(class.Name, listed), nil
}

// selected lists the machines of a node class, by name. They are the cache's: they must not be changed.
func selected(ctx context.Context, from client.Reader, class *nodeclass.InventoryNodeClass) ([]*Machine, error) {
	selector, err := selectorOf(class)
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.InventoryMachineList{}
	if err := from.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	machines := make([]*Machine, len(list.Items))
	for i := range list.Items {
		machines[i] = &list.Items[i]
	}
	slices.SortFunc(machines, func(a, b *Machine) int { return cmp.Compare(a.Name, b.Name) })
	return machines, nil
}

func selectorOf(class *nodeclass.InventoryNodeClass) (labels.Selector, error) {
	if class.Spec.Selector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(class.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading spec.selector of InventoryNodeClass %q: %w", class.Name, err)
	}
	return selector, nil
}

// of is the answer for a node class.
func (o *offer) of(class string, machines []*Machine) []*cloudprovider.InstanceType {
	signature := o.signature(machines)
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.answers[class]; ok && known.signature == signature {
		return known.types
	}
	if len(o.answers) >= maxAnswers {
		clear(o.answers)
	}
	made := o.build(machines)
	o.answers[class] = answer{signature: signature, types: made}
	return made
}

// signature spells out everything that build depends on.
func (o *offer) signature(machines []*Machine) string {
	var b strings.Builder
	for _, m := range machines {
		b.WriteString(o.names.of(m))
		b.WriteByte(' ')
		b.WriteString(reservationID(o.names.of(m), m))
		for _, key := range wattsKeys {
			b.WriteByte(' ')
			b.WriteString(wattsLabels(m)[key])
		}
		b.WriteByte(' ')
		b.WriteString(heldReservation(m))
		b.WriteString(strconv.FormatBool(claimable(m)))
		b.WriteString(strconv.FormatBool(usable(m)))
		b.WriteByte('\n')
	}
	return b.String()
}

// claimable tells whether a NodeClaim may have the machine now.
func claimable(m *Machine) bool {
	return usable(m) && m.Status.Claim == nil && conditionTrue(m, v1alpha1.ConditionMachineAvailable)
}

// usable tells whether the machine is well: free or in use. A type without any usable machine is unavailable; one
// whose usable machines are all in use is full.
func usable(m *Machine) bool {
	return m.DeletionTimestamp.IsZero() && availability(m) == v1alpha1.MachineOffered &&
		(m.Status.Claim != nil || conditionTrue(m, v1alpha1.ConditionMachineAvailable))
}

// reservationID names the machines of a type at one price.
func reservationID(typeName string, m *Machine) string {
	return typeName + "." + strconv.FormatFloat(priceOf(m), 'f', -1, 64)
}

// heldReservation is the reservation that the machine's NodeClaim was launched in.
func heldReservation(m *Machine) string {
	if m.Status.Claim == nil {
		return ""
	}
	return m.Status.Claim.Reservation
}

// build makes the instance types, in the order of the first machine of each.
func (o *offer) build(machines []*Machine) []*cloudprovider.InstanceType {
	made := o.grouped(machines)
	addHeld(made, machines, o.names)
	return made
}

// addHeld has each machine that was edited since it was claimed stand under the reservation that its NodeClaim holds,
// too: Karpenter ends a drifted node before its replacement when the reservation that this frees is what the pods
// then fit into. Where the reservation has other machines that are free it stands for those alone.
func addHeld(made []*cloudprovider.InstanceType, machines []*Machine, names *typeNames) {
	free := map[string]int{}
	for _, it := range made {
		for _, of := range it.Offerings {
			free[of.ReservationID()] += of.ReservationCapacity
		}
	}
	for _, m := range machines {
		held := heldReservation(m)
		if held == "" || held == reservationID(names.of(m), m) || free[held] > 0 || !usable(m) {
			continue
		}
		for _, it := range made {
			if it.Name == names.of(m) && !slices.Contains(reservationsOf(it.Offerings), held) {
				it.Offerings = append(it.Offerings, newOffering(held, m))
				it.Requirements[v1alpha1.LabelReservationID] = in(v1alpha1.LabelReservationID, reservationsOf(it.Offerings)...)
			}
		}
	}
}

func reservationsOf(offerings cloudprovider.Offerings) []string {
	ids := make([]string, len(offerings))
	for i, of := range offerings {
		ids[i] = of.ReservationID()
	}
	return ids
}

// grouped makes an instance type of each group of like machines.
func (o *offer) grouped(machines []*Machine) []*cloudprovider.InstanceType {
	groups := map[string][]*Machine{}
	var order []string
	for _, m := range machines {
		name := o.names.of(m)
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], m)
	}
	made := make([]*cloudprovider.InstanceType, len(order))
	for i, name := range order {
		made[i] = newInstanceType(name, groups[name], o.names.keys)
	}
	return made
}

// newInstanceType makes the instance type of like machines. Of their own labels it defines those with these keys; one
// that they do not have is defined as absent, because Karpenter takes an undefined label for a match.
func newInstanceType(name string, machines []*Machine, keys []string) *cloudprovider.InstanceType {
	first := machines[0]
	requirements := scheduling.NewRequirements(
		in(corev1.LabelInstanceTypeStable, name),
		in(corev1.LabelArchStable, cmp.Or(first.Spec.Architecture, karpv1.ArchitectureAmd64)),
		in(corev1.LabelOSStable, string(corev1.Linux)),
		in(corev1.LabelTopologyZone, first.Spec.Zone),
		in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeReserved),
		in(v1alpha1.LabelHardwareClass, first.Spec.HardwareClass),
	)
	for _, key := range keys {
		requirements[key] = inOrAbsent(key, first.Spec.Labels[key])
	}
	for _, key := range wattsKeys {
		requirements[key] = inOrAbsent(key, valuesOf(machines, func(m *Machine) string { return wattsLabels(m)[key] })...)
	}
	offerings := newOfferings(name, machines)
	requirements[v1alpha1.LabelReservationID] = in(v1alpha1.LabelReservationID, reservationsOf(offerings)...)
	return &cloudprovider.InstanceType{
		Name:             name,
		Requirements:     requirements,
		Offerings:        offerings,
		Capacity:         capacityOf(first),
		DynamicResources: dynamicResources(name, first),
		Overhead:         &cloudprovider.InstanceTypeOverhead{SystemReserved: first.Spec.Reserved},
	}
}

// newOfferings is one reserved offering for each price.
func newOfferings(typeName string, machines []*Machine) cloudprovider.Offerings {
	var offerings cloudprovider.Offerings
	byID := map[string]*cloudprovider.Offering{}
	for _, m := range machines {
		id := reservationID(typeName, m)
		of := byID[id]
		if of == nil {
			of = newOffering(id, m)
			byID[id] = of
			offerings = append(offerings, of)
		}
		of.Available = of.Available || usable(m)
		if claimable(m) {
			of.ReservationCapacity++
		}
	}
	return offerings
}

// newOffering is a reserved offering of machines like this one; it has no free ones yet.
func newOffering(id string, m *Machine) *cloudprovider.Offering {
	return &cloudprovider.Offering{Price: priceOf(m), Available: usable(m), Requirements: scheduling.NewRequirements(
		in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeReserved),
		in(corev1.LabelTopologyZone, m.Spec.Zone),
		in(v1alpha1.LabelReservationID, id),
	)}
}

func in(key string, values ...string) *scheduling.Requirement {
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

func inOrAbsent(key string, values ...string) *scheduling.Requirement {
	values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
	if len(values) == 0 {
		return scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist)
	}
	return in(key, values...)
}

func valuesOf(machines []*Machine, of func(*Machine) string) []string {
	var values []string
	for _, m := range machines {
		if v := of(m); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}
