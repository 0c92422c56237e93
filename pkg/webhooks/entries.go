package webhooks

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// Bounds of what is generated: the API server looks at every entry for every pod that is created, and stores an object of 1.5 MiB at most.
const (
	maxEntries = 200
	// maxEntryBytes bounds what McKubes put into one entry, the text of their selector, names and namespaces.
	maxEntryBytes = 4 << 10
	maxNames      = 100 // of pods in an entry
)

// group is McKubes whose pods one entry describes: those with one selector, or the podnames of one
// namespace.
type group struct {
	selector   *metav1.LabelSelector // nil: names
	namespaces []string
	names      []string
	mckubes    []*mcv1.McKube
	// bytes is the size of the three.
	bytes int
}

// Entries are webhooks for the pods without label sdv.com that McKubes govern, shaped like template,
// which is the one for those with it: the same server, the same namespaces left out. McKubes with one
// selector share an entry, and so do those with a podname in a namespace. There are at most maxEntries. Namespaces take turns for
// them, the oldest McKube of each first, so that a namespace with many selectors takes only what others leave. The pods of the McKubes in leftOut, and of
// those in tooLong, whose selector fits no entry, need the label.
func Entries(template admissionv1.MutatingWebhook, mckubes []*mcv1.McKube) (entries []admissionv1.MutatingWebhook, leftOut, tooLong []*mcv1.McKube) {
	groups, tooLong := groups(template, mckubes)
	for _, g := range byTurns(groups) {
		if len(entries) == maxEntries {
			leftOut = append(leftOut, g.mckubes...)
			continue
		}
		entries = append(entries, g.entry(template))
	}
	return entries, leftOut, tooLong
}

// groups are in the order of their oldest McKube.
func groups(template admissionv1.MutatingWebhook, mckubes []*mcv1.McKube) (list []*group, tooLong []*mcv1.McKube) {
	open := map[string]*group{}
	for _, m := range byAge(mckubes) {
		key, ok := groupKey(template, m)
		if !ok {
			continue
		}
		if bytesOf(m) > maxEntryBytes {
			tooLong = append(tooLong, m)
			continue
		}
		g := open[key]
		if g == nil || !g.fits(m) {
			g = &group{selector: m.Spec.Selector, bytes: selectorBytes(m.Spec.Selector)}
			open[key] = g
			list = append(list, g)
		}
		g.add(m)
	}
	return list, tooLong
}

// byTurns orders groups by how many older ones the namespace of their oldest McKube has, then by age. A new McKube takes the place of an older one only
// where that one's namespace has more of them.
func byTurns(groups []*group) []*group {
	turns, of := map[*group]int{}, map[string]int{}
	for _, g := range groups {
		namespace := g.mckubes[0].Namespace
		turns[g] = of[namespace]
		of[namespace]++
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(turns[a], turns[b]) })
	return groups
}

// bytesOf is what the McKube puts into an entry of its own.
func bytesOf(m *mcv1.McKube) int {
	return selectorBytes(m.Spec.Selector) + len(m.Namespace) + len(m.Spec.Podname)
}

// selectorBytes is the length of all keys and values.
func selectorBytes(selector *metav1.LabelSelector) (n int) {
	if selector == nil {
		return 0
	}
	for key, value := range selector.MatchLabels {
		n += len(key) + len(value)
	}
	for _, e := range selector.MatchExpressions {
		n += len(e.Key) + len(e.Operator)
		for _, value := range e.Values {
			n += len(value)
		}
	}
	return n
}

// fits reports whether the McKube still has room in the group.
func (g *group) fits(m *mcv1.McKube) bool {
	return len(g.names) < maxNames && g.bytes+len(m.Namespace)+len(m.Spec.Podname) <= maxEntryBytes
}

func byAge(mckubes []*mcv1.McKube) []*mcv1.McKube {
	return slices.SortedFunc(slices.Values(mckubes), func(a, b *mcv1.McKube) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
}

// groupKey tells which McKubes share an entry; false where none is needed: without settings, in
// a namespace that is left alone, or for pods that have the label anyway.
func groupKey(template admissionv1.MutatingWebhook, m *mcv1.McKube) (string, bool) {
	if m.Spec.RTSettings == nil || !m.DeletionTimestamp.IsZero() || !serves(template, m.Namespace) {
		return "", false
	}
	if m.Spec.Selector == nil {
		return "names/" + m.Namespace, m.Spec.Podname != ""
	}
	selector, err := metav1.LabelSelectorAsSelector(m.Spec.Selector)
	if err != nil || selector.Empty() {
		return "", false
	}
	if requirements, _ := selector.Requirements(); slices.ContainsFunc(requirements, needsLabel) {
		return "", false
	}
	return "selector/" + selector.String(), true
}

func needsLabel(r labels.Requirement) bool {
	return r.Key() == mcv1.LabelRT && !r.Matches(labels.Set{})
}

// serves tells whether the template's namespaceSelector, which goes by names, takes the namespace.
func serves(template admissionv1.MutatingWebhook, namespace string) bool {
	selector, err := metav1.LabelSelectorAsSelector(template.NamespaceSelector)
	return err == nil && selector.Matches(labels.Set{corev1.LabelMetadataName: namespace})
}

func (g *group) add(m *mcv1.McKube) {
	g.mckubes = append(g.mckubes, m)
	var added bool
	if g.namespaces, added = insert(g.namespaces, m.Namespace); added {
		g.bytes += len(m.Namespace)
	}
	if m.Spec.Selector != nil {
		return
	}
	if g.names, added = insert(g.names, m.Spec.Podname); added {
		g.bytes += len(m.Spec.Podname)
	}
}

func insert(sorted []string, value string) (list []string, added bool) {
	at, found := slices.BinarySearch(sorted, value)
	if found {
		return sorted, false
	}
	return slices.Insert(sorted, at, value), true
}

func (g *group) entry(template admissionv1.MutatingWebhook) admissionv1.MutatingWebhook {
	e := *template.DeepCopy()
	unlabelled := metav1.LabelSelectorRequirement{Key: mcv1.LabelRT, Operator: metav1.LabelSelectorOpDoesNotExist}
	e.ObjectSelector = &metav1.LabelSelector{}
	if g.selector != nil {
		e.ObjectSelector = g.selector.DeepCopy()
	}
	e.ObjectSelector.MatchExpressions = append(e.ObjectSelector.MatchExpressions, unlabelled)
	e.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: g.namespaces,
	}}}
	if len(g.names) > 0 {
		e.MatchConditions = []admissionv1.MatchCondition{{Name: "podname", Expression: named(g.names)}}
	}
	e.Name = g.name()
	return e
}

// named holds on pods with the names. A pod whose name is still to be made up has none.
func named(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return fmt.Sprintf("has(object.metadata.name) && object.metadata.name in [%s]", strings.Join(quoted, ", "))
}

// longestName is what is kept of a McKube's name in that of its entry, which has 253 characters at most.
const longestName = 128

// name is by the oldest McKube, whose group it stays in, for the user who reads it in the API server's errors.
func (g *group) name() string {
	oldest := g.mckubes[0]
	sum := sha256.Sum256([]byte(string(oldest.UID) + "/" + oldest.Namespace + "/" + oldest.Name))
	readable := strings.TrimRight(oldest.Name[:min(longestName, len(oldest.Name))], ".-")
	return fmt.Sprintf("%s.%s.g%s.governed.mckube.io", readable, oldest.Namespace, hex.EncodeToString(sum[:4]))
}
