package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCheckpointFigures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "taken.json")
	for text, want := range map[string]map[string]float64{
		`{"Unavailable":[3,1,2],"EndToEnd":[9,7,8]}`: {
			"unavailable_p50_s_checkpoint": 2, "unavailable_max_s_checkpoint": 3, "end_to_end_p50_s_checkpoint": 8, "end_to_end_max_s_checkpoint": 9,
		},
		`{"Unavailable":[1],"EndToEnd":[]}`: nil,
		`{}`:                                nil,
		`{`:                                 nil,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		figures, err := checkpointFigures(file)
		if (err == nil) != (want != nil) || len(figures) != len(want) {
			t.Errorf("%s: %v, %v; want %v", text, figures, err, want)
		}
		for _, f := range figures {
			if f.Value != want[f.Key] {
				t.Errorf("%s is %v; want %v", f.Key, f.Value, want[f.Key])
			}
		}
	}
}
