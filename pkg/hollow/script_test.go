package hollow_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/hollow"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	for text, tc := range map[string]struct {
		parse func(string) ([]hollow.Step, error)
		want  []hollow.Step
	}{
		"": {hollow.ParsePodScript, nil},
		"5s overrun 2; app: 1m miss 3;": {hollow.ParsePodScript, []hollow.Step{
			{After: 5 * time.Second, Verb: hollow.Overrun, Number: 2}, {After: time.Minute, Container: "app", Verb: hollow.Miss, Number: 3},
		}},
		"0s pressure 95;10s pressure 20; 20s silent 30s; 20s granularity 400; 1h drift; 1h drift 5s": {hollow.ParseNodeScript, []hollow.Step{
			{Verb: hollow.Pressure, Number: 95}, {After: 10 * time.Second, Verb: hollow.Pressure, Number: 20},
			{After: 20 * time.Second, Verb: hollow.Silent, For: 30 * time.Second}, {After: 20 * time.Second, Verb: hollow.Granularity, Number: 400},
			{After: time.Hour, Verb: hollow.Drift}, {After: time.Hour, Verb: hollow.Drift, For: 5 * time.Second},
		}},
		"1s overrun-until-moved; app: 2s overrun-while-crowded 60; 3s miss-while-crowded 0; 4s need 40": {hollow.ParsePodScript, []hollow.Step{
			{After: time.Second, Verb: hollow.OverrunUntilMoved}, {After: 2 * time.Second, Container: "app", Verb: hollow.OverrunWhileCrowded, Number: 60},
			{After: 3 * time.Second, Verb: hollow.MissWhileCrowded}, {After: 4 * time.Second, Verb: hollow.Need, Number: 40},
		}},
		"1s pressure-each 30; 2s late; 3s late 1m": {hollow.ParseNodeScript, []hollow.Step{
			{After: time.Second, Verb: hollow.PressureEach, Number: 30}, {After: 2 * time.Second, Verb: hollow.Late},
			{After: 3 * time.Second, Verb: hollow.Late, For: time.Minute},
		}},
	} {
		if got, err := tc.parse(text); err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// Every refusal names the step and what would be right.
func TestScriptsThatAreRefused(t *testing.T) {
	t.Parallel()
	pod, node := hollow.ParsePodScript, hollow.ParseNodeScript
	for text, tc := range map[string]struct {
		parse func(string) ([]hollow.Step, error)
		want  []string
	}{
		"5s overrun 1; 6s explode 2":     {pod, []string{`step 2 ("6s explode 2")`, `"explode" is no verb of Pods`, "overrun, overrun-until-moved, overrun-while-crowded, miss, miss-while-crowded or need"}},
		"5s overrun-until-moved 1":       {pod, []string{`argument "1" of overrun-until-moved: want none`}},
		"5s miss-while-crowded 101":      {pod, []string{`argument "101" of miss-while-crowded`, "0 to 100"}},
		"5s overrun 0":                   {pod, []string{`argument "0" of overrun`, "from 1 to 10000"}},
		"5s overrun":                     {pod, []string{`argument "" of overrun`}},
		"overrun 5":                      {pod, []string{`time "overrun"`, "from 0s to 24h0m0s"}},
		"-1s overrun 5":                  {pod, []string{`time "-1s"`}},
		"5s overrun 1 2":                 {pod, []string{"4 words", "<time> <verb> [argument]"}},
		"5s overrun 1; 4s overrun 1":     {pod, []string{"step 2", "4s is before the step above, 5s", "in order"}},
		"0s pressure 101":                {node, []string{`argument "101" of pressure`, "0 to 100"}},
		"0s silent":                      {node, []string{`argument "" of silent`, "a duration above 0s"}},
		"0s silent 25h":                  {node, []string{`argument "25h" of silent`}},
		"0s pressure-each -1":            {node, []string{`argument "-1" of pressure-each`, "0 to 100"}},
		"0s late x":                      {node, []string{`argument "x" of late`}},
		"0s drift x":                     {node, []string{`argument "x" of drift`}},
		"0s overrun 1":                   {node, []string{`"overrun" is no verb of Nodes`, "pressure, pressure-each, late, silent, granularity or drift"}},
		"app: 0s pressure 1":             {node, []string{`"app:" names a container`}},
		strings.Repeat("0s miss 1;", 65): {pod, []string{"step 65", "at most 64 steps"}},
	} {
		_, err := tc.parse(text)
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v does not say %q", text, err, want)
			}
		}
	}
}

func FuzzScripts(f *testing.F) {
	f.Add("5s overrun 2; app: 10s miss 3")
	f.Add("0s pressure 95; 20s silent 30s; 0s drift")
	f.Add("0s overrun-until-moved; 1s miss-while-crowded 60; 2s late 3s; 4s pressure-each 5")
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) ([]hollow.Step, error){hollow.ParsePodScript, hollow.ParseNodeScript} {
			steps, err := parse(text)
			if err != nil && len(steps) > 0 {
				t.Errorf("%q: steps and an error", text)
			}
			for i, s := range steps {
				if s.After < 0 || s.After > 24*time.Hour || i > 0 && s.After < steps[i-1].After {
					t.Errorf("%q: %+v", text, steps)
				}
			}
		}
	})
}
