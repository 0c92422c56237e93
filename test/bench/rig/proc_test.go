package rig

import (
	"os"
	"testing"
)

func TestParseSchedstat(t *testing.T) {
	if got, err := parseSchedstat("1500 20 3\n"); err != nil || got != 1500 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "1 2", "a 2 3"} {
		if _, err := parseSchedstat(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestParseMemory(t *testing.T) {
	const rollup = "00400000-7ffd000 ---p 00000000 00:00 0 [rollup]\nRss:    2048 kB\nPss_Anon: 7 kB\nAnonymous:  1024 kB\n"
	if got, err := parseMemory(rollup); err != nil || got != (Memory{Resident: 2 << 20, Own: 1 << 20}) {
		t.Errorf("got %d, %v", got, err)
	}
	for _, bad := range []string{"", "Rss: 1 kB\n", "Rss: many kB\nAnonymous: 1 kB\n"} {
		if _, err := parseMemory(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestOwnProcess(t *testing.T) {
	if _, err := CPU(os.Getpid()); err != nil {
		t.Error(err)
	}
	if got, err := MemoryOf(os.Getpid()); err != nil || got.Own < 1<<20 || got.Resident < got.Own {
		t.Errorf("got %d, %v", got, err)
	}
}
