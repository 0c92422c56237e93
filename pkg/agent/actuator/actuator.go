package actuator

import (
	"errors"
	"fmt"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Names of backends, best first.
const (
	HCBS     = "hcbs"
	RTGroup  = "rtgroup"
	FIFO     = "fifo"
	Deadline = "deadline"
	CFS      = "cfs"
	Blocked  = "blocked"
)

// Policies by which the kernel chooses among the servers of a core.
const (
	PolicyFixed = "fixed"
	PolicyEDF   = "edf"
)

// Identities: the hierarchy whose group names a server to the programs.
const (
	IdentityCPU    = "cpu"
	IdentityCpuset = "cpuset"
)

// Where the programs read how much of a budget is left (enum source of event.h).
const (
	SourceOwn      uint32 = 0
	SourceRTGroup  uint32 = 1
	SourceDeadline uint32 = 2
)

// Errors that a caller tells apart, by errors.Is. Set returns them bare.
var (
	// ErrNoRoom: the kernel's admission, or what is reserved at a level above, has no room for the budget.
	ErrNoRoom = errors.New("no room for the budget")
	// ErrBusy: the kernel refuses while tasks are what they are, for example a budget of 0 with real-time tasks.
	ErrBusy = errors.New("tasks of the group stand in the way")
	// ErrGone: the group was removed, renamed or made anew.
	ErrGone = errors.New("the control group is gone")
	// ErrRenamed: it lives on under another name. It is ErrGone, too.
	ErrRenamed = fmt.Errorf("it was renamed: %w", ErrGone)
	// ErrContested: something else changes the group as often as it is set right.
	ErrContested = errors.New("something else keeps changing the group")
	// ErrFixed: the backend reserves the high budget from the start and has nothing to raise.
	ErrFixed = errors.New("the high budget is in force from the start")
)

// Budget is what a group may use in every period, in microseconds.
type Budget struct{ RuntimeUs, PeriodUs int64 }

// Server is a container's group and what it is to be given, in microseconds.
type Server struct {
	// ID names the server across its containers, of which each has a group of its own; empty where there is only one.
	ID string
	// Cgroup is the path of the group below the root of each hierarchy, beginning with a slash.
	Cgroup string
	// Core that it runs on.
	Core       int
	PeriodUs   int64
	DeadlineUs int64
	// BudgetUs at the start; 0 leaves the budget that is in force: of another period, the same share of its core.
	BudgetUs int64
	// HighUs is the most that Set may be asked for; the levels above are sized for it.
	HighUs int64
	// Priority among the servers of the core, 1 to 99, for backends that give one.
	Priority int
}

// Backend is one way of having budgets enforced. Its methods may be called from any goroutine.
type Backend interface {
	Name() string
	// Guarantee says in words what is promised, for people.
	Guarantee() string
	// Source is where the programs read what is left of a budget.
	Source() uint32
	// Identity is the hierarchy whose group names a server: IdentityCPU or IdentityCpuset.
	Identity() string
	// Policy is PolicyFixed or PolicyEDF.
	Policy() string
	// ReservedOnly: budgets cannot be raised in time, every server has its high budget from the start.
	ReservedOnly() bool
	// Unenforced says why the kernel ends no budgets any more, though it did when the backend was taken; nil while it does.
	Unenforced() error
	// Capacity of each core for servers together, in millionths.
	Capacity(cores []int) map[int]int64
	// Room makes way for a container whose group does not exist yet, at every level above, and returns
	// what its runtime should write when it makes the group. It may be called again.
	Room(s Server) (table.First, error)
	// Open takes a container's group over: room at every level above, its core, its first budget, all
	// read back. A group that was opened before, by this process or a former one, is taken as it is.
	Open(s Server) (Group, error)
	// Spare names the groups of the table that are not open, before a Sweep. What the kernel enforces there is left in force for as long as they are
	// named; what only we would end is put back, a while after Open failed.
	Spare(groups []string)
	// InForce is what the kernel enforces in a group that is not open, and the cores of that; nothing where only we would end budgets.
	InForce(group string) (Budget, []int, error)
	// Sweep puts back what no open group needs any more and shrinks the levels above. Call it once a
	// whole table was opened, and every second or so; it returns what it did.
	Sweep() ([]string, error)
	// Restore puts back everything that was ever changed, and reads it back.
	Restore() error
}

// Group is an open server.
type Group interface {
	// ID of the control group, in the hierarchy of Identity.
	ID() uint64
	// Set the budget, in microseconds. HOT.
	Set(budgetUs int64) error
	// Read budget and cores from the kernel.
	Read() (Budget, []int, error)
	// Move to another core.
	Move(core int) error
	// Check compares the kernel with what was asked for, sets again what differs and says what did.
	Check() (drift []string, err error)
	// Threads in the group, and how many of them have a real-time policy now.
	Threads() (all, realtime int, err error)
	// Below counts the threads in groups that the container has made below its own. The agent does not govern these
	// groups.
	Below() (int, error)
	// Close lets go of the group. With restore everything is put back as it was before the first Open, whatever
	// the group is called by now; otherwise it stays in force.
	Close(restore bool) error
}

// Enforcer is a Group whose budget we enforce. Both methods are HOT.
type Enforcer interface {
	// Throttle takes the real-time policy from every thread until Replenish gives it back.
	Throttle() error
	Replenish() error
}

// Resizable is a Group whose high budget may change while it is open. An error means that it is sized as before.
type Resizable interface{ Resize(highUs int64) error }

// Prioritized is a Group whose threads have a priority that may change.
type Prioritized interface{ SetPriority(priority int) error }
