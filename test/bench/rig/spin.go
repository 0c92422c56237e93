package rig

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/process"
)

// Spinner is a thread of an ordinary policy that is always busy.
type Spinner struct {
	Core, Nice int
	// Start, on the clock of Monotonic, is when it begins; 0: at once.
	Start int64
}

// Spin keeps an ordinary thread busy on each core until stop is called.
func Spin(p Programs, dir string, cores []int) (stop func(), err error) {
	var spinners []Spinner
	for _, core := range cores {
		spinners = append(spinners, Spinner{Core: core})
	}
	return SpinAll(p, dir, spinners)
}

// SpinAll keeps ordinary threads busy until stop is called.
func SpinAll(p Programs, dir string, spinners []Spinner) (stop func(), err error) {
	var running []*process.Process
	stop = func() {
		for _, child := range running {
			child.Kill()
		}
	}
	for i, s := range spinners {
		child, err := process.Start(process.Command{
			Name: "spinner", Path: p.Task, Log: filepath.Join(dir, fmt.Sprintf("spinner-%d.log", i)), Args: s.arguments(),
		})
		if err != nil {
			stop()
			return nil, err
		}
		running = append(running, child)
	}
	return stop, nil
}

// arguments of the periodic program: its first job outlives every run.
func (s Spinner) arguments() []string {
	const life = 20 * time.Minute
	return []string{
		"--name=spinner", "--policy=other", "--period=" + (life / 2).String(), "--work=" + life.String(), "--duration=" + life.String(),
		"--core=" + strconv.Itoa(s.Core), "--nice=" + strconv.Itoa(s.Nice), "--start=" + strconv.FormatInt(s.Start, 10),
	}
}
