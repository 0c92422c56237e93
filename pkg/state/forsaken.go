package state

import "fmt"

// Forsaken is why the pod in this one's place on another node would be without the budget that this one has: a McKube governs this one by its name,
// and that one has another. Empty: it is governed as this one is.
func (p *PodView) Forsaken() string {
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
