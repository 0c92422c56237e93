package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// recorder is an instance of the kernel's tracer that records who runs on a core.
type recorder struct{ dir, mount string }

// traceKiB is the size of the buffer: some 100 bytes a switch, a few thousand switches a second.
const traceKiB = 64 << 10

// record begins to record; an error means that this kernel does not let us.
func record(core int, dir string) (*recorder, error) {
	r := &recorder{dir: filepath.Join("/sys/kernel/tracing/instances", fmt.Sprintf("mainspring-bench-%d", os.Getpid()))}
	if _, err := os.Stat(filepath.Dir(r.dir)); err != nil {
		r.mount = filepath.Join(dir, "tracing")
		if err := errors.Join(os.MkdirAll(r.mount, 0o700), unix.Mount("none", r.mount, "tracefs", 0, "")); err != nil {
			return nil, fmt.Errorf("mounting tracefs: %w", err)
		}
		r.dir = filepath.Join(r.mount, "instances", filepath.Base(r.dir))
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("making an instance of the tracer: %w", err), r.unmount())
	}
	for _, f := range [][2]string{
		{"trace_clock", "mono"}, {"tracing_cpumask", strconv.FormatUint(1<<core, 16)}, {"buffer_size_kb", strconv.Itoa(traceKiB)},
		{"events/sched/sched_switch/enable", "1"}, {"events/timer/hrtimer_expire_entry/enable", "1"},
		{"events/irq/softirq_entry/enable", "1"}, {"events/irq/softirq_exit/enable", "1"}, {"tracing_on", "1"},
	} {
		if err := os.WriteFile(filepath.Join(r.dir, f[0]), []byte(f[1]), 0); err != nil {
			return nil, errors.Join(fmt.Errorf("setting up the tracer: %w", err), r.close())
		}
	}
	return r, nil
}

// stop returns what was recorded.
func (r *recorder) stop() (recording, error) {
	if err := os.WriteFile(filepath.Join(r.dir, "tracing_on"), []byte("0"), 0); err != nil {
		return recording{}, errors.Join(fmt.Errorf("stopping the tracer: %w", err), r.close())
	}
	file, err := os.Open(filepath.Join(r.dir, "trace"))
	if err != nil {
		return recording{}, errors.Join(fmt.Errorf("reading the trace: %w", err), r.close())
	}
	heard, err := parseTrace(file, tick())
	return heard, errors.Join(err, file.Close(), r.close())
}

// close removes the instance.
func (r *recorder) close() error {
	err := os.Remove(r.dir)
	if err != nil {
		err = fmt.Errorf("removing the tracer's instance: %w", err)
	}
	return errors.Join(err, r.unmount())
}

func (r *recorder) unmount() error {
	if r.mount == "" {
		return nil
	}
	if err := unix.Unmount(r.mount, 0); err != nil {
		return fmt.Errorf("unmounting tracefs: %w", err)
	}
	return nil
}

// recording is who had the core, and when the core stood still.
type recording struct {
	turns []turn
	// interrupts are softirqs, whoever had the core.
	interrupts []turn
	gaps       []stall
}

// turn is a time for which a thread had the core. Ordinary: by CFS.
type turn struct {
	span
	name     string
	ordinary bool
}

// idle is the name of the kernel's idle thread.
const idle = "swapper"

func (t turn) idle() bool { return strings.HasPrefix(t.name, idle) }

// tick is how often, in nanoseconds, the kernel interrupts a core that is busy.
func tick() int64 {
	var resolution unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &resolution); err != nil {
		panic(err) // the clock exists, and the pointer is good
	}
	return resolution.Nano()
}

// parser makes a recording of the lines of a trace.
type parser struct {
	recording
	tick, last int64
	interrupt  span // softirq under way
	action     string
}

// parseTrace reads a trace by the clock mono of context switches, timers and softirqs.
func parseTrace(trace io.Reader, tick int64) (recording, error) {
	p := parser{tick: tick}
	lines := bufio.NewScanner(trace)
	for lines.Scan() {
		if at, event, ok := parseLine(lines.Text()); ok {
			p.take(at, event)
		}
	}
	return p.recording, lines.Err()
}

// take an event. A busy core that shows none for longer than a tick stood still.
func (p *parser) take(at int64, event string) {
	current := len(p.turns) - 1
	if still := at - p.last - p.tick; current >= 0 && still >= stallNs && !p.turns[current].idle() {
		p.gaps = append(p.gaps, stall{span{p.last, at}, still})
	}
	p.last = at
	p.softirq(at, event)
	next, is := parseSwitch(event)
	if !is {
		return
	}
	if current >= 0 {
		p.turns[current].to = at
	}
	next.from, next.to = at, at
	p.turns = append(p.turns, next)
}

// softirq takes the begin and the end of a softirq: "softirq_entry: vec=3 [action=NET_RX]". A long one is work of the
// kernel that no thread asked for at that time, and waits for nobody's priority.
func (p *parser) softirq(at int64, event string) {
	switch name, told, _ := strings.Cut(event, ": "); name {
	case "softirq_entry":
		_, action, _ := strings.Cut(told, "action=")
		p.interrupt.from, p.action = at, strings.TrimRight(action, "]")
	case "softirq_exit":
		if p.action == "" {
			return
		}
		s := span{p.interrupt.from, at}
		p.interrupts = append(p.interrupts, turn{span: s, name: p.action})
		if s.to-s.from >= stallNs {
			p.gaps = append(p.gaps, stall{s, s.to - s.from})
		}
		p.action = ""
	}
}

// parseLine splits "... [001] d..2. 12345.678901: EVENT".
func parseLine(line string) (at int64, event string, ok bool) {
	head, event, found := strings.Cut(line, ": ")
	seconds, err := strconv.ParseFloat(head[strings.LastIndexByte(head, ' ')+1:], 64)
	if !found || err != nil || !(seconds >= 0 && seconds < 1e9) {
		return 0, "", false
	}
	return int64(seconds*1e6+0.5) * 1000, event, true
}

// firstOrdinary is the kernel's priority from which on threads are ordinary ones.
const firstOrdinary = 100

// parseSwitch reads "sched_switch: prev_comm=... ==> next_comm=NAME next_pid=1 next_prio=120".
func parseSwitch(event string) (next turn, ok bool) {
	_, told, found := strings.Cut(event, " ==> next_comm=")
	name, told, named := strings.Cut(told, " next_pid=")
	_, prio, ranked := strings.Cut(told, " next_prio=")
	rank, err := strconv.Atoi(strings.TrimSpace(prio))
	if !strings.HasPrefix(event, "sched_switch: ") || !found || !named || !ranked || err != nil {
		return turn{}, false
	}
	return turn{name: name, ordinary: rank >= firstOrdinary}, true
}

// mostNamed is how many are named of those that had the core.
const mostNamed = 5

// whoRan says who had the core in a span, the longest first, and the softirqs in that time:
// "low-8 12.30 ms, spinner (ordinary) 4.00 ms; softirqs of that: NET_RX 3.00 ms".
func (r recording) whoRan(s span) string {
	text := longest(r.turns, s)
	if interrupts := longest(r.interrupts, s); interrupts != "" {
		text += "; softirqs of that: " + interrupts
	}
	return text
}

func longest(turns []turn, s span) string {
	total := map[string]int64{}
	for _, t := range turns {
		if ran := min(t.to, s.to) - max(t.from, s.from); ran > 0 {
			total[t.label()] += ran
		}
	}
	names := make([]string, 0, len(total))
	for name := range total {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %.2f ms", name, ms(total[name]))
	}
	return strings.Join(names[:min(len(names), mostNamed)], ", ")
}

// label of who had the core. The idle thread, and numbers of threads in the kernel, are of no interest.
func (t turn) label() string {
	if t.idle() {
		return "idle"
	}
	name, _, _ := strings.Cut(t.name, "/")
	if t.ordinary {
		return name + " (ordinary)"
	}
	return name
}
