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

func TestParseRSS(t *testing.T) {
	if got, err := parseRSS("Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t1\n"); err != nil || got != 2<<20 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "VmRSS: many kB\n"} {
		if _, err := parseRSS(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestOwnProcess(t *testing.T) {
	if _, err := CPU(os.Getpid()); err != nil {
		t.Error(err)
	}
	if got, err := RSS(os.Getpid()); err != nil || got < 1<<20 {
		t.Errorf("got %d, %v", got, err)
	}
}
