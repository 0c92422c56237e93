package rt

// Placement maps a server's ID to the ID of its core.
type Placement map[string]int

// NoCore stands for "on no core".
const NoCore = -1

// Node is what Arrange places.
type Node struct {
	Cores   []Core
	Servers []Server
	// Current is where the servers are; entries of servers or cores that are gone are ignored.
	Current Placement
	// Witness is where the scheduler allocated them: a packing that passes on every core.
	Witness Placement
}

// Why a server's core changes.
const (
	// ChangePlaced: the server had no core.
	ChangePlaced = "Placed"
	// ChangeDisplaced: a more critical server prefers its core.
	ChangeDisplaced = "Displaced"
	// ChangeReturned: it goes back to the core of its claim, so that others can have theirs.
	ChangeReturned = "Returned"
	// ChangeLost: its core is gone or no longer passes the test with it.
	ChangeLost = "Lost"
	// ChangeRefused: no core passes the test with it.
	ChangeRefused = "Refused"
)

// Change is a server that goes from one core to another; NoCore stands for none.
type Change struct {
	ID       string
	From, To int
	Reason   string
}

// Arrange packs a node's servers onto its cores.
func Arrange(in Node) (placed Placement, changes []Change, refused map[string]Verdict) {
	placed, refused = Placement{}, map[string]Verdict{}
	loads := make([]Load, 0, len(in.Cores))
	for _, core := range in.Cores {
		loads = append(loads, Load{Core: core})
	}
	for _, s := range in.Servers {
		core, v, ok := BestCore(loads, s)
		if !ok {
			refused[s.ID] = v
			continue
		}
		placed[s.ID] = core
	}
	return placed, changes, refused
}
