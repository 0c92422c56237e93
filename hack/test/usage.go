package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// machine is what the cores of this machine have done since it started, all together.
type machine struct{ busy, idle time.Duration }

// tick is the unit of /proc/stat, USER_HZ, which is 100 on every architecture that Go knows (proc_stat(5)).
const tick = 10 * time.Millisecond

// readMachine reads /proc/stat. Where there is none, both are zero.
func readMachine() machine {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}
	}
	return parseMachine(string(content))
}

// parseMachine reads the first line: user nice system idle iowait irq softirq steal; guest times are part of user's.
func parseMachine(stat string) machine {
	line, _, _ := strings.Cut(stat, "\n")
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return machine{}
	}
	return machine{
		busy: time.Duration(user+nice+system+irq+softirq+steal) * tick,
		idle: time.Duration(idle+iowait) * tick,
	}
}

func (m machine) since(before machine) machine {
	return machine{busy: m.busy - before.busy, idle: m.idle - before.idle}
}
