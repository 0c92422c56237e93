package state

import "fmt"

// LosesBudget returns why the replacement of a pod on another node would run without its budget: a McKube governs the pod by its name, and
// the replacement has another name. Empty: the replacement is governed as the pod is.
func (p *PodView) LosesBudget() string {
	if p.Namesake {
		return ""
	}
	for _, g := range p.Governed {
		if g.McKube.Spec.Selector == nil {
			return fmt.Sprintf("McKube %s governs the pod by its name, and the one in its place has another; give it a selector", g.McKube.Name)
		}
	}
	return ""
}
