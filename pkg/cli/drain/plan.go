// Package drain empties a node: pods that can be are migrated, the rest is evicted.
package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// requestTimeout bounds one request.
const requestTimeout = 30 * time.Second

// What is done with a pod.
type way string

const (
	// stays: it is of the node.
	stays way = "stays"
	// migrates: a PodMigration moves it.
	migrates way = "migrates"
	// evicts: the API server is asked to evict it.
	evicts way = "evicts"
	// blocks: it would be lost, and nobody said that it may be.
	blocks way = "blocks"
)

// item is a pod of the node.
type item struct {
	pod *corev1.Pod
	way way
	why string
	// governed by a McKube that lets it migrate.
	governed bool
}

// Allow is what may be lost.
type Allow struct {
	// Ownerless pods, which nobody makes again.
	Ownerless bool
	// EmptyDir: what is in such volumes.
	EmptyDir bool
}

// plan says what is done with each pod of the node.
func plan(pods []corev1.Pod, mckubes []mcv1.McKube, allow Allow) ([]item, error) {
	var out []item
	for i := range pods {
		governs, err := governing(&pods[i], mckubes)
		if err != nil {
			return nil, err
		}
		out = append(out, judge(&pods[i], governs, allow))
	}
	slices.SortFunc(out, func(a, b item) int { return strings.Compare(name(a.pod), name(b.pod)) })
	return out, nil
}

func judge(p *corev1.Pod, governs []mcv1.McKube, allow Allow) item {
	if why := bound(p); why != "" {
		return item{pod: p, way: stays, why: why}
	}
	owner := metav1.GetControllerOf(p)
	is := func(kind mcv1.MigrationKind) bool {
		return slices.ContainsFunc(governs, func(m mcv1.McKube) bool { return policy(m) == kind })
	}
	volume := scratch(p)
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return item{pod: p, way: evicts, why: "it has finished"}
	case p.DeletionTimestamp != nil:
		return item{pod: p, way: evicts, why: "it ends already"}
	case volume != "" && !allow.EmptyDir:
		return item{pod: p, way: blocks, why: fmt.Sprintf("what is in its volume %s (emptyDir) would be lost; allow it with --delete-emptydir-data", volume)}
	case is(mcv1.MigrationNever) && (owner != nil || allow.Ownerless):
		return item{pod: p, way: evicts, why: "its McKube says migration.policy Never"}
	case owner != nil || is(mcv1.MigrationCheckpoint) && !is(mcv1.MigrationNever):
		return item{pod: p, way: migrates, governed: len(governs) > 0}
	}
	return ownerless(p, allow)
}

// bound is why the pod is of the node and stays; empty: it is not.
func bound(p *corev1.Pod) string {
	owner := metav1.GetControllerOf(p)
	switch {
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "" || owner != nil && owner.Kind == "Node":
		return "it is a static pod of the node"
	case owner != nil && owner.Kind == "DaemonSet":
		return "DaemonSet " + owner.Name + " would make it again"
	}
	return ""
}

// ownerless is what is done with a pod that nothing makes again.
func ownerless(p *corev1.Pod, allow Allow) item {
	if allow.Ownerless {
		return item{pod: p, way: evicts, why: "no controller owns it"}
	}
	return item{pod: p, way: blocks, why: "no controller owns it, so nothing would make it again; allow it with --force"}
}

// scratch names a volume of the pod that ends with it; empty: there is none.
func scratch(p *corev1.Pod) string {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil {
			return v.Name
		}
	}
	return ""
}

func policy(m mcv1.McKube) mcv1.MigrationKind {
	if m.Spec.Migration == nil {
		return mcv1.MigrationRestart
	}
	return m.Spec.Migration.Policy
}

// governing are the McKubes of a pod.
func governing(p *corev1.Pod, all []mcv1.McKube) ([]mcv1.McKube, error) {
	var out []mcv1.McKube
	for _, m := range all {
		if m.Namespace != p.Namespace || m.DeletionTimestamp != nil {
			continue
		}
		matches := m.Spec.Podname == p.Name
		if m.Spec.Selector != nil {
			selector, err := metav1.LabelSelectorAsSelector(m.Spec.Selector)
			if err != nil {
				return nil, fmt.Errorf("reading the selector of McKube %s/%s: %w", m.Namespace, m.Name, err)
			}
			matches = !selector.Empty() && selector.Matches(labels.Set(p.Labels))
		}
		if matches {
			out = append(out, m)
		}
	}
	return out, nil
}

// read the pods of a node, and all McKubes.
func read(ctx context.Context, c client.Client, node string) ([]corev1.Pod, []mcv1.McKube, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	mckubes := &mcv1.McKubeList{}
	if err := c.List(ctx, mckubes); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil, fmt.Errorf("listing McKubes: the cluster does not know them; is Mainspring installed there?")
		}
		return nil, nil, fmt.Errorf("listing McKubes: %w", err)
	}
	return pods.Items, mckubes.Items, nil
}

func name(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
