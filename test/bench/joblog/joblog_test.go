package joblog_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

func TestLogIsReadAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.json")
	want := joblog.Log{Name: "a", Period: 10, Deadline: 8, Released: 3, Jobs: []joblog.Job{{1, 2, 3, 4}, {11, 9, 3, 4}}}
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := joblog.Read(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestMissesCountLateAndUnfinishedJobs(t *testing.T) {
	l := joblog.Log{Period: 10, Deadline: 8, Released: 5, Jobs: []joblog.Job{{Release: 0, Response: 8}, {Release: 10, Response: 9}, {Release: 20, Response: 25e6}}}
	if got := l.Misses(); got != 4 {
		t.Errorf("%d misses; want 4: two late, two unfinished", got)
	}
	if got := l.Responses(); len(got) != 5 || slices.Max(got) != 25 || got[4] < 24 {
		t.Errorf("responses %v; want those of unfinished jobs, too", got)
	}
}

func TestParseRefusals(t *testing.T) {
	for text, want := range map[string]string{
		`{`:              "decoding",
		`{"deadline":1}`: "period 0",
		`{"period":1}`:   "deadline 0",
		`{"period":1,"deadline":1,"released":0,"jobs":[[1,2,3,4]]}`: "released 0",
	} {
		if _, err := joblog.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one with %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"name":"a","period":10,"deadline":8,"released":1,"jobs":[[1,2,3,4]]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := joblog.Parse(raw)
		if err != nil || l.Released > 1000 {
			return
		}
		if m := l.Misses(); m < 0 || m > l.Released {
			t.Fatalf("%d misses of %d jobs", m, l.Released)
		}
	})
}

func TestDemand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := joblog.Demand{Least: rapid.Int64Range(1, 1000).Draw(t, "least")}
		d.Most = d.Least + rapid.Int64Range(0, 1000).Draw(t, "more")
		d.Probability = rapid.Float64Range(0, 1).Draw(t, "probability")
		d.OverrunLeast = d.Most + rapid.Int64Range(1, 1000).Draw(t, "overrun")
		d.OverrunTo = d.OverrunLeast + rapid.Int64Range(0, 1000).Draw(t, "to")
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		jobs := d.Draw(seed, 100)
		if !slices.Equal(jobs, d.Draw(seed, 100)) {
			t.Fatal("the same seed gave other jobs")
		}
		for _, work := range jobs {
			ordinary := work >= d.Least && work <= d.Most
			if overrun := work >= d.OverrunLeast && work <= d.OverrunTo; !ordinary && !overrun {
				t.Fatalf("work %d is outside of %+v", work, d)
			}
		}
	})
}

func TestBurstsBeginInTheMiddle(t *testing.T) {
	d := joblog.Demand{Least: 1, Most: 1, Probability: 1, OverrunLeast: 5, OverrunTo: 5, BurstEvery: 10, Burst: 2}
	want := []int64{1, 1, 1, 1, 1, 5, 5, 1, 1, 1}
	if got := d.Draw(1, 20); !slices.Equal(got, slices.Concat(want, want)) {
		t.Errorf("got %v; want %v twice", got, want)
	}
}

func TestDemandRefusals(t *testing.T) {
	for _, d := range []joblog.Demand{
		{}, {Least: 2, Most: 1}, {Least: 1, Most: 1, Probability: 2}, {Least: 1, Most: 1, Probability: 0.5}, {Least: 1, Most: 1, Probability: 0.5, OverrunLeast: 3, OverrunTo: 2},
		{Least: 1, Most: 1, BurstEvery: 10, Burst: 6}, {Least: 1, Most: 1, Burst: 1},
	} {
		if d.Validate() == nil {
			t.Errorf("%+v is taken", d)
		}
	}
}
