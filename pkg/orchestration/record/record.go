// Package record translates between an action as the rules see it and the RTAction that stores it.
package record

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Read is the action that an object stores, with what follows from its kind among its uses. What the object's spec
// lacks for that is an error, beside which the action is complete as far as it goes.
func Read(o *v1alpha1.RTAction) (rules.Action, error) {
	criticality, err := rt.ParseCriticality(o.Spec.Beneficiary.Criticality)
	a := rules.Action{
		ID:          o.Name,
		Kind:        rules.Kind(o.Spec.Kind),
		Uses:        unspent(Uses(o.Spec), o.Status.Spent),
		Moves:       Moves(o.Spec),
		Cause:       o.Spec.Cause,
		Criticality: criticality,
		Since:       at(o.Spec.Since, o.CreationTimestamp.Time),
		StartBy:     at(o.Spec.StartBy, time.Time{}),
		Limit:       o.Spec.Timeout.Duration,
		Phase:       phase(o.Status.Phase),
		Entered:     at(o.Status.PhaseTime, at(o.Spec.Since, o.CreationTimestamp.Time)),
		Unwanted:    o.Status.Unwanted,
		Message:     o.Status.Message,
	}
	for i, p := range o.Spec.Pods {
		if p.UID == "" && err == nil {
			err = fmt.Errorf("pods[%d].uid: must not be empty: a later pod of the same name is another", i)
		}
	}
	if err == nil {
		err = validateMoves(o.Spec.Moves)
	}
	if err != nil {
		return a, err
	}
	return a, a.Validate()
}

// validateMoves tells whether every container has one core to go to.
func validateMoves(moves []v1alpha1.ActionMove) error {
	type container struct {
		pod  types.UID
		name string
	}
	seen := map[container]bool{}
	for i, m := range moves {
		key := container{m.PodUID, m.Container}
		switch {
		case m.PodUID == "" || m.Container == "":
			return fmt.Errorf("moves[%d]: podUID %q and container %q must not be empty", i, m.PodUID, m.Container)
		case m.Core < 0:
			return fmt.Errorf("moves[%d].core: %d is not the number of a core", i, m.Core)
		case seen[key]:
			return fmt.Errorf("moves[%d]: container %s of pod %s can go to one core only", i, m.Container, m.PodUID)
		}
		seen[key] = true
	}
	return nil
}

// Write stores what has become of an action.
func Write(a rules.Action, o *v1alpha1.RTAction) {
	s := &o.Status
	s.Phase = v1alpha1.ActionPhase(a.Phase)
	s.PhaseTime = &metav1.MicroTime{Time: a.Entered.Truncate(time.Microsecond)}
	s.Unwanted, s.Message = a.Unwanted, Short(a.Message, longest)
	if a.Phase != rules.Waiting && a.Phase != rules.Expired {
		s.WaitingFor = ""
	}
}

// longest message that an object takes.
const longest = 4096

// Short cuts a text to so many bytes, between characters.
func Short(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "")
}

// Moves is what an action does not leave where it is: pods that it moves or evicts, containers that go to other cores, and pods that
// leave a node with it. A node is opened for pods that stay where they are until another action moves them.
func Moves(s v1alpha1.RTActionSpec) (out []rules.Move) {
	if rules.Kind(s.Kind) == rules.OpenNode {
		return nil
	}
	for _, p := range slices.Concat(s.Pods, s.Displaces) {
		out = append(out, rules.Move{Pod: string(p.UID)})
	}
	for _, m := range s.Moves {
		out = append(out, rules.Move{Pod: string(m.PodUID), Container: m.Container})
	}
	return out
}

// Uses is what follows from the fields of a spec, and then what it names itself. What PodDisruptionBudgets cover
// changes, and is not among it.
func Uses(s v1alpha1.RTActionSpec) []rules.Use {
	out := []rules.Use{use(rules.Cluster, "", 1)}
	for _, p := range s.Pods {
		out = append(out, use(rules.Pod, string(p.UID), rules.All))
	}
	for uid := range moving(s) {
		out = append(out, use(rules.Pod, string(uid), rules.All))
	}
	if rules.Kind(s.Kind) != rules.OpenNode { // its pods stay where they are
		out = append(out, namespaces(s.Pods)...)
	}
	share := 1
	if k := rules.Kind(s.Kind); k == rules.Rearrange || k == rules.ReplaceNode {
		share = rules.All
	}
	if s.Node != "" && rules.Kind(s.Kind) != rules.OpenNode { // nothing is done to the node that pods are to leave
		out = append(out, use(rules.Node, s.Node, share))
	}
	if s.TargetNode != "" && s.TargetNode != s.Node {
		out = append(out, use(rules.Node, s.TargetNode, 1))
	}
	if s.NodePool != "" && rules.Kind(s.Kind) == rules.ReplaceNode {
		out = append(out, use(rules.PoolBudget, s.NodePool, 1))
	}
	for _, u := range s.Uses {
		out = append(out, use(rules.Resource(u.Resource), u.Name, int(u.Amount)))
	}
	return out
}

// namespaces of pods that are on the move, each once.
func namespaces(pods []v1alpha1.ActionPod) (out []rules.Use) {
	for _, p := range pods {
		at := slices.IndexFunc(out, func(u rules.Use) bool { return u.Name == p.Namespace })
		if at < 0 {
			out, at = append(out, use(rules.Namespace, p.Namespace, 0)), len(out)
		}
		out[at].Amount++
	}
	return out
}

// moving are the pods whose containers go to other cores, each once.
func moving(s v1alpha1.RTActionSpec) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		for i, m := range s.Moves {
			same := func(o v1alpha1.ActionMove) bool { return o.PodUID == m.PodUID }
			if !slices.ContainsFunc(s.Moves[:i], same) && !yield(m.PodUID) {
				return
			}
		}
	}
}

// Spend adds what the world accounts for.
func Spend(o *v1alpha1.RTAction, keys []rules.Key) {
	for _, k := range keys {
		if key := (v1alpha1.ActionKey{Resource: string(k.Resource), Name: k.Name}); !slices.Contains(o.Status.Spent, key) {
			o.Status.Spent = append(o.Status.Spent, key)
		}
	}
}

// Spent tells whether the world accounts for something already.
func Spent(o *v1alpha1.RTAction, k rules.Key) bool {
	return slices.Contains(o.Status.Spent, v1alpha1.ActionKey{Resource: string(k.Resource), Name: k.Name})
}

func unspent(uses []rules.Use, spent []v1alpha1.ActionKey) []rules.Use {
	return slices.DeleteFunc(uses, func(u rules.Use) bool {
		return slices.Contains(spent, v1alpha1.ActionKey{Resource: string(u.Resource), Name: u.Name})
	})
}

func use(r rules.Resource, name string, amount int) rules.Use {
	return rules.Use{Key: rules.Key{Resource: r, Name: name}, Amount: amount}
}

// phase of an object whose status has not been written yet is Waiting.
func phase(p v1alpha1.ActionPhase) rules.Phase {
	if p == "" {
		return rules.Waiting
	}
	return rules.Phase(p)
}

func at(t *metav1.MicroTime, otherwise time.Time) time.Time {
	if t == nil || t.IsZero() {
		return otherwise
	}
	return t.Time
}

// Name of an attempt at what a key stands for.
func Name(kind rules.Kind, key string, attempt int32) string {
	return strings.ToLower(string(kind)) + "-" + key + "-" + strconv.Itoa(int(attempt))
}
