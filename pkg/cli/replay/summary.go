package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/text"
)

// Summary is all figures of a replay, as written to replay.json.
type Summary struct {
	Input Input   `json:"input"`
	Fit   Fit     `json:"fit"`
	Run   Run     `json:"run"`
	Wait  Waiting `json:"wait"`
	Spent Spent   `json:"spent"`
	// Machines are the machines that were opened, by type and capacity type.
	Machines []MachineUse `json:"machines"`
	// Series is the run over time, thinned to about a thousand points.
	Series []Point `json:"series"`
	// How says how each group of figures was computed.
	How map[string]string `json:"how"`
	// Environment is what the run was made on.
	Environment map[string]string `json:"environment,omitempty"`
}

// Input is what was replayed.
type Input struct {
	Pods         string  `json:"pods"`
	Nodes        string  `json:"nodes,omitempty"`
	FromSeconds  float64 `json:"fromSeconds"`
	Limit        int     `json:"limit,omitempty"`
	Speed        float64 `json:"speed"`
	Selected     int     `json:"selectedPods"`
	SpanDays     float64 `json:"traceSpanDays"`
	WantingGPU   int     `json:"podsWantingGPU"`
	Fractional   int     `json:"podsWantingAFractionOfAGPU"`
	TraceNodes   int     `json:"traceMachines,omitempty"`
	TraceShapes  int     `json:"traceMachineShapes,omitempty"`
	NodePoolFile string  `json:"nodePools,omitempty"`
}

// Fit is how many of the selected pods fit on an empty machine of a set.
type Fit struct {
	OnCatalogue      float64  `json:"onCatalogueShare"`
	OnTraceMachines  float64  `json:"onTraceMachinesShare,omitempty"`
	CatalogueTypes   int      `json:"catalogueTypesAllowed"`
	Misfits          []Misfit `json:"fitNoAllowedMachine"`
	MisfitsOnMachine []Misfit `json:"fitNoTraceMachine,omitempty"`
}

// Run is what happened.
type Run struct {
	Seconds      float64  `json:"realSeconds"`
	TraceDays    float64  `json:"traceDays"`
	Created      int      `json:"podsCreated"`
	Started      int      `json:"podsStarted"`
	Finished     int      `json:"podsFinished"`
	StillRunning int      `json:"podsStillRunningAtEnd"`
	Moved        int      `json:"podsMovedByConsolidation"`
	NeverStarted []Misfit `json:"podsNeverStarted"`
	Samples      int      `json:"samples"`
}

// Waiting is how long pods waited.
type Waiting struct {
	Bound      Waits `json:"untilBound"`
	BoundGPU   Waits `json:"untilBoundWithGPU"`
	BoundNoGPU Waits `json:"untilBoundWithoutGPU"`
	Running    Waits `json:"untilRunning"`
	// Recorded is what the same pods waited in the trace, in trace seconds.
	Recorded Waits `json:"recordedInTrace"`
	// NeverPlacedInTrace counts the pods of the selection that the recorded cluster never placed.
	NeverPlacedInTrace int `json:"neverPlacedInTrace"`
}

// Spent is cost, energy and use, in trace time unless it says otherwise.
type Spent struct {
	Dollars     float64 `json:"dollars"`
	DollarsIdle float64 `json:"dollarsForNodesWithoutPods"`
	KWh         float64 `json:"kWh"`
	NodeHours   float64 `json:"nodeHours"`
	DollarsReal float64 `json:"dollarsInRealTime"`
	KWhReal     float64 `json:"kWhInRealTime"`
	PeakNodes   int     `json:"peakNodes"`
	PeakPrice   float64 `json:"peakDollarsPerHour"`
	PeakPods    int     `json:"peakPodsRunning"`
	CPU         float64 `json:"cpuUtilisation"`
	GPU         float64 `json:"gpuUtilisation"`
}

// MachineUse is how much one kind of machine was used.
type MachineUse struct {
	Type         string  `json:"type"`
	CapacityType string  `json:"capacityType"`
	Opened       int     `json:"opened"`
	NodeHours    float64 `json:"nodeHours"`
	Dollars      float64 `json:"dollars"`
}

// Point is one moment of the run, in trace time since its start.
type Point struct {
	TraceHours float64 `json:"traceHours"`
	Nodes      int     `json:"nodes"`
	Pending    int     `json:"pending"`
	Running    int     `json:"running"`
	Price      float64 `json:"dollarsPerHour"`
	Watts      float64 `json:"watts"`
}

// Record is what a run leaves behind.
type Record struct {
	Jobs     []Job
	Outcomes []Outcome
	Series   observe.Series // from the first creation to the end
	Machines []observe.Machine
	Start    time.Time
	End      time.Time
	Speed    float64
}

// Figures computes the figures of a run; Input and Fit are the caller's.
func Figures(r Record) Summary {
	return Summary{
		Run: r.run(), Wait: r.waiting(), Spent: r.spent(), Machines: r.machines(), Series: r.points(), How: how(r.Speed),
	}
}

// ErrNoneStarted means that not one pod of a replay was started, though allowed machines hold them.
var ErrNoneStarted = errors.New("no pod was started")

// Failure is ErrNoneStarted, or nil. Pods that no allowed machine holds are no failure.
func (s Summary) Failure() error {
	never := s.Run.NeverStarted
	if s.Run.Started > 0 || len(never) == 0 {
		return nil
	}
	return fmt.Errorf("%w, though allowed machines hold %s; %s: %s", ErrNoneStarted, text.Plural(len(never), "pod"), never[0].Pod, never[0].Why)
}

func (r Record) run() Run {
	real := r.End.Sub(r.Start)
	out := Run{Seconds: real.Seconds(), TraceDays: real.Hours() * r.Speed / 24, Samples: len(r.Series)}
	for i, o := range r.Outcomes {
		out.Created += one(o.Attempts > 0)
		out.Started += one(!o.Running.IsZero())
		out.Finished += one(!o.Deleted.IsZero())
		out.Moved += max(0, o.Attempts-1)
		if o.Running.IsZero() {
			out.NeverStarted = append(out.NeverStarted, Misfit{Pod: r.Jobs[i].Name})
		}
	}
	out.StillRunning = out.Started - out.Finished
	return out
}

func (r Record) waiting() Waiting {
	var all, gpu, noGPU, running, recorded []time.Duration
	out, wantingGPU := Waiting{}, 0
	for i, o := range r.Outcomes {
		wantingGPU += one(r.Jobs[i].GPUs > 0)
		if wait, ok := o.Wait(); ok {
			all = append(all, wait)
			if r.Jobs[i].GPUs > 0 {
				gpu = append(gpu, wait)
			} else {
				noGPU = append(noGPU, wait)
			}
		}
		if start, ok := o.Start(); ok {
			running = append(running, start)
		}
		if r.Jobs[i].WasScheduled {
			recorded = append(recorded, r.Jobs[i].Wait())
		} else {
			out.NeverPlacedInTrace++
		}
	}
	pods := len(r.Outcomes)
	out.Bound, out.BoundGPU, out.BoundNoGPU = WaitsOf(all, pods), WaitsOf(gpu, wantingGPU), WaitsOf(noGPU, pods-wantingGPU)
	out.Running, out.Recorded = WaitsOf(running, pods), WaitsOf(recorded, pods)
	return out
}

func (r Record) spent() Spent {
	s := r.Series
	return Spent{
		Dollars: s.Dollars() * r.Speed, DollarsIdle: s.Hours(func(p observe.Sample) float64 { return p.Idle }) * r.Speed, KWh: s.KWh() * r.Speed, NodeHours: s.NodeHours() * r.Speed,
		DollarsReal: s.Dollars(), KWhReal: s.KWh(),
		PeakNodes: int(s.Peak(func(p observe.Sample) float64 { return float64(p.Count()) })),
		PeakPrice: s.Peak(func(p observe.Sample) float64 { return p.Price }),
		PeakPods:  int(s.Peak(func(p observe.Sample) float64 { return float64(p.Running) })),
		CPU:       s.Utilisation(func(p observe.Sample) observe.Amount { return p.CPU }),
		GPU:       s.Utilisation(func(p observe.Sample) observe.Amount { return p.GPU }),
	}
}

func (r Record) machines() []MachineUse {
	uses := map[[2]string]*MachineUse{}
	for _, m := range r.Machines {
		key := [2]string{m.Type, m.CapacityType}
		use, ok := uses[key]
		if !ok {
			use = &MachineUse{Type: m.Type, CapacityType: m.CapacityType}
			uses[key] = use
		}
		hours := m.Life(r.End).Hours() * r.Speed
		use.Opened++
		use.NodeHours += hours
		use.Dollars += hours * m.Price
	}
	var all []MachineUse
	for _, use := range uses {
		all = append(all, *use)
	}
	slices.SortFunc(all, func(a, b MachineUse) int {
		return cmp.Or(-cmp.Compare(a.Dollars, b.Dollars), cmp.Compare(a.Type, b.Type), cmp.Compare(a.CapacityType, b.CapacityType))
	})
	return all
}

// maxPoints is about how many points of the series are written out.
const maxPoints = 1000

func (r Record) points() []Point {
	every := len(r.Series)/maxPoints + 1
	var points []Point
	for i := 0; i < len(r.Series); i += every {
		s := r.Series[i]
		points = append(points, Point{
			TraceHours: s.At.Sub(r.Start).Hours() * r.Speed, Nodes: s.Count(), Pending: s.Pending, Running: s.Running, Price: s.Price, Watts: s.Watts,
		})
	}
	return points
}

// FiguresFile is the name of the written summary.
const FiguresFile = "replay.json"

// WriteJSON writes the summary to dir/replay.json, making dir when it is missing, and gives the file's path.
func WriteJSON(dir string, s Summary) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making report folder: %w", err)
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding figures: %w", err)
	}
	path := filepath.Join(dir, FiguresFile)
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("writing figures: %w", err)
	}
	return path, nil
}
