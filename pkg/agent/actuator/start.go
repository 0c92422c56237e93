package actuator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

// choiceFile is the name of the record in the state directory of what Start chose.
const choiceFile = "backend.json"

// maxChoice bounds that record, in bytes.
const maxChoice = 1 << 12

// maxGranularityUs is the largest that makes sense: a second.
const maxGranularityUs = 1_000_000

// Choice is what a process governs with.
type Choice struct {
	Backend Backend
	// GranularityUs is how late the end of a budget may come, in microseconds.
	GranularityUs int64
	// Findings are why each backend was taken or not, Notes what else is worth a line in the log.
	Findings []Finding
	Notes    []string
	// Unmeasured is why the granularity is not that of a self-test.
	Unmeasured error
}

// choice is the record of it on disk. It counts for one boot, like the journal: another may be one of another kernel.
type choice struct {
	Boot          string `json:"boot"`
	Backend       string `json:"backend"`
	GranularityUs int64  `json:"granularityUs"`
	// Unmeasured is Choice.Unmeasured in words.
	Unmeasured string `json:"unmeasured,omitempty"`
}

// Start chooses what a process governs with. Where what a former process of this boot did is still in force (groups of the journal
// are there), or servers were promised something (Governed), it is the same backend again, untried and with the same granularity: a
// node that is full has no bandwidth to try anything with, and its containers are under that backend. A record that cannot be read, names another boot or a
// backend that is not wanted or does not work any more never stops the start: then Probe chooses, the granularity is measured, and what another backend left is
// put back.
func Start(ctx context.Context, o ProbeOptions) (Choice, error) {
	m, err := newMachine(o)
	if err != nil {
		return Choice{}, fmt.Errorf("choosing a backend: %w", err)
	}
	former, unread := m.former(o.StateDir)
	var out Choice
	out.note("what was chosen before cannot be used", unread)
	if former.Backend != "" && (o.Governed || m.governed(anyRecord)) {
		if err = m.resume(&out, former, o.Want); err == nil {
			return out, nil
		}
		out.note("what was chosen before cannot be used", err)
	}
	var findings []Finding
	out.Backend, findings, err = m.probe(o.Want)
	out.Findings = append(out.Findings, findings...)
	if err != nil {
		return out, fmt.Errorf("choosing a backend: %w", err)
	}
	if former.Backend != "" && former.Backend != out.Backend.Name() {
		m.step("putting back what backend " + former.Backend + " left")
		out.note("putting back what backend "+former.Backend+" left; the sweep goes on with it", out.Backend.Restore())
	}
	m.step("measuring how late the budgets of backend " + out.Backend.Name() + " end")
	if err := out.measure(ctx, o, m.kernel); err != nil {
		return out, err
	}
	out.note("a start on a full node will have to choose anew", m.remember(o.StateDir, out))
	return out, nil
}

func (c *Choice) note(what string, err error) {
	if err != nil {
		c.Notes = append(c.Notes, fmt.Sprintf("%s: %v", what, err))
	}
}

// resume takes the former backend without any trial.
func (m *machine) resume(out *Choice, former choice, want string) error {
	if want != "" && want != former.Backend {
		return fmt.Errorf("it is %s; %s is wanted", former.Backend, want)
	}
	c := candidates()[slices.Index(names(), former.Backend)]
	b, _, err := c.build(m)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	out.Backend, out.GranularityUs = b, former.GranularityUs
	if former.Unmeasured != "" {
		out.Unmeasured = errors.New(former.Unmeasured)
	}
	out.Findings = append(out.Findings, Finding{Backend: c.name, Taken: true, Reason: b.Guarantee() + "; as before, for what it did is in force"})
	return nil
}

// measure has the backend tested, except where nothing can be. A self-test that cannot be made is no reason not to govern: what ends at ticks ends a
// tick late. One that shows that nothing ends is.
func (c *Choice) measure(ctx context.Context, o ProbeOptions, k kernel) error {
	if c.Backend.Name() == Blocked {
		return nil
	}
	measure := o.measure
	if measure == nil {
		measure = MeasureGranularity
	}
	c.GranularityUs, c.Unmeasured = measure(ctx, c.Backend, firstOf(o.Cores))
	if err := ctx.Err(); err != nil {
		return err
	}
	if errors.Is(c.Unmeasured, errNotEnforced) {
		return fmt.Errorf("testing backend %s: %w", c.Backend.Name(), c.Unmeasured)
	}
	if c.Unmeasured != nil || endsAtTicks(c.Backend, o.Host) {
		c.GranularityUs = max(c.GranularityUs, k.tickUs())
	}
	return nil
}

// anyRecord is of any change.
func anyRecord(r record) bool { return r.Controller != roomRecord }

// governed says that a group is there of which the journal has such a record.
func (m *machine) governed(of func(record) bool) bool {
	for _, r := range m.journal.records {
		if of(r) && m.there(r.Group) {
			return true
		}
	}
	return false
}

// former is what a process of this boot chose; nothing when there was none.
func (m *machine) former(dir string) (choice, error) {
	path := filepath.Join(dir, choiceFile)
	data, err := keptfile.Read(path, maxChoice)
	if errors.Is(err, fs.ErrNotExist) {
		return choice{}, nil
	}
	if err != nil {
		return choice{}, err
	}
	c, err := parseChoice(data)
	if err != nil {
		return choice{}, fmt.Errorf("reading %s: %w", path, err)
	}
	if c.Boot != m.journal.boot {
		return choice{}, nil
	}
	return c, nil
}

// parseChoice names the field that makes no sense.
func parseChoice(data []byte) (choice, error) {
	var c choice
	if err := json.Unmarshal(data, &c); err != nil {
		return choice{}, err
	}
	switch {
	case c.Boot == "":
		return choice{}, errors.New("boot is empty")
	case !slices.Contains(names(), c.Backend):
		return choice{}, fmt.Errorf("backend %q; want one of %s", c.Backend, strings.Join(names(), ", "))
	case c.GranularityUs < 0 || c.GranularityUs > maxGranularityUs:
		return choice{}, fmt.Errorf("granularityUs %d; want 0 to %d", c.GranularityUs, maxGranularityUs)
	}
	return c, nil
}

// remember a choice for the next process of this boot. That nothing works is nothing to remember.
func (m *machine) remember(dir string, c Choice) error {
	if c.Backend.Name() == Blocked {
		return nil
	}
	kept := choice{Boot: m.journal.boot, Backend: c.Backend.Name(), GranularityUs: c.GranularityUs}
	if c.Unmeasured != nil {
		kept.Unmeasured = c.Unmeasured.Error()
	}
	data, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("keeping the choice of the backend: %w", err)
	}
	if err := replace(filepath.Join(dir, choiceFile), append(data, '\n')); err != nil {
		return fmt.Errorf("keeping the choice of the backend: %w", err)
	}
	return nil
}
