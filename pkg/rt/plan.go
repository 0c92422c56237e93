package rt

// Raise is a server whose budget may be raised.
type Raise struct {
	ID string
	// ToUs is the highest budget, in microseconds.
	ToUs int64
	// Step is the bandwidth that the raise adds to what is promised.
	Step PPM
	// AtOnce: the raise needs nobody squeezed. Otherwise the plan's Squeeze comes first.
	AtOnce bool
	// Limited: at most the plan's Windows of such raises overlap (the rule of T1k).
	Limited bool
}

// Squeeze is a server whose budget may be cut.
type Squeeze struct {
	ID string
	// FloorUs is the smallest budget, in microseconds.
	FloorUs int64
	// Frees is the bandwidth that the cut gives back, from the server's current deadline on.
	Frees PPM
}

// CorePlan says, before anything happens, who on a core may be raised and who is squeezed for it.
type CorePlan struct {
	Core int
	// Threshold is what the budgets promised in a period may add up to, granularity included.
	Threshold PPM
	// Test proved the plan. Holds: the set passes it. Otherwise only raises that fit are planned.
	Test  string
	Holds bool
	// Windows is how many Limited raises may overlap.
	Windows int
	// VirtualDeadline, when not 0, is the factor in PPM of the period that servers of the Raise list have as relative
	// deadline while none of them is raised (EDF-VD).
	VirtualDeadline PPM
	// Raise is in order of preference: the most critical first.
	Raise []Raise
	// Squeeze is in order: the least critical first. Empty when every raise is AtOnce.
	Squeeze []Squeeze
}

// PlanCore makes the escalation plan of a core.
func PlanCore(core Core, servers []Server) CorePlan {
	v := Holds(core, servers)
	return CorePlan{Core: core.ID, Threshold: core.Capacity, Test: v.Test, Holds: v.Admitted, Windows: Windows}
}
