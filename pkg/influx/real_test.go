package influx_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/influx"
	"github.com/mainspring-rt/mainspring/pkg/test/influxd"
)

func migration(pod, target, success string, when time.Time) influx.Point {
	return influx.Point{Measurement: "pod_migration", Tags: map[string]string{"pod_name": pod, "source_node": "edge-1", "target_node": target, "success": success},
		Fields: map[string]any{"migration_count": int64(1)}, Time: when}
}

func line(t *testing.T, p influx.Point) string {
	t.Helper()
	l, err := p.Line()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestARealInfluxDBStoresWhatItIsGiven(t *testing.T) {
	t.Parallel()
	server := influxd.Start(t, "turtlebot")
	client := &influx.Client{URL: server.URL, Bucket: "turtlebot", Mode: influx.ModeV1, HTTP: http.DefaultClient}
	odd := "a b,c=d\"e'\\f\ng"
	lines := []string{
		line(t, migration("web-0", "edge-2", "true", at)), line(t, migration("web-1", "", "false", at)),
		line(t, migration("web-0", "edge-2", "true", at)), // once more: it takes its own place
		line(t, migration(odd, "edge-2", "true", at)),
	}
	if err := client.Write(t.Context(), lines); err != nil {
		t.Fatal(err)
	}
	rows := server.Ask("turtlebot", `SELECT * FROM pod_migration`)
	if len(rows) != 1 || len(rows[0].Values) != 3 {
		t.Fatalf("stored %v", rows)
	}
	count := server.Ask("turtlebot", `SELECT sum(migration_count) FROM pod_migration WHERE success = 'true' AND pod_name = 'web-0'`)
	if got := count[0].Values[0][1]; got != json.Number("1") {
		t.Errorf("count is %v", got)
	}
	names := fmt.Sprint(server.Ask("turtlebot", `SHOW TAG VALUES FROM pod_migration WITH KEY = pod_name`)[0].Values)
	if want := "[[pod_name a b,c=d\"e'\\f g] [pod_name web-0] [pod_name web-1]]"; names != want {
		t.Errorf("names are %s, want %s", names, want)
	}
	// The type of the field is settled by the first point.
	other := migration("web-0", "edge-2", "true", at.Add(time.Second))
	other.Fields = map[string]any{"migration_count": 1.0}
	var status *influx.StatusError
	if err := client.Write(t.Context(), []string{line(t, other)}); !errors.As(err, &status) || status.Code != http.StatusBadRequest {
		t.Errorf("a float was taken: %v", err)
	}
	// It has neither the interface of 2.x nor another database.
	v2 := *client
	v2.Mode = influx.ModeV2
	for _, err := range []error{v2.Write(t.Context(), lines), func() error { _, err := client.Query(t.Context(), "x"); return err }(),
		(&influx.Client{URL: server.URL, Bucket: "nowhere", Mode: influx.ModeV1, HTTP: http.DefaultClient}).Write(t.Context(), lines)} {
		if !errors.As(err, &status) || status.Code != http.StatusNotFound {
			t.Errorf("got %v, want 404", err)
		}
	}
}

// A point is written once the server is there again, and only the one that it refuses is missing.
func TestARealInfluxDBThatIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	server := influxd.Start(t, "turtlebot")
	client := &influx.Client{URL: server.URL, Bucket: "turtlebot", Mode: influx.ModeV1, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	limits := influx.Defaults()
	limits.Linger, limits.Rest, limits.LongestRest = time.Millisecond, 10*time.Millisecond, 50*time.Millisecond
	writer := influx.NewWriter(client, limits, clock.RealClock{})
	server.Stop()
	for i := range 20 {
		p := migration(fmt.Sprintf("web-%d", i), "edge-2", "true", at)
		if i == 7 {
			p.Fields = map[string]any{"migration_count": "many"}
		}
		if err := writer.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = writer.Start(t.Context())
	}()
	server.Run()
	deadline := time.Now().Add(30 * time.Second)
	for {
		rows := server.Ask("turtlebot", `SELECT count(migration_count) FROM pod_migration`)
		if len(rows) == 1 && rows[0].Values[0][1] == json.Number("19") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("stored %v", rows)
		}
		time.Sleep(20 * time.Millisecond) // asks again
	}
}

func TestWritingInBothModes(t *testing.T) {
	t.Parallel()
	client, last := answers(t, 204, "")
	if err := client.Write(t.Context(), []string{"m f=1i 1"}); err != nil {
		t.Fatal(err)
	}
	if got := last.Method + " " + last.URL.RequestURI(); got != "POST /api/v2/write?bucket=b&org=ke+ti&precision=ns" || last.Header.Get("Authorization") != "Token secret" {
		t.Errorf("%s with %q", got, last.Header.Get("Authorization"))
	}
	client.Mode, client.Token = influx.ModeV1, func() (string, error) { return "me:pass", nil }
	if err := client.Write(t.Context(), []string{"m f=1i 1"}); err != nil {
		t.Fatal(err)
	}
	user, password, _ := last.BasicAuth()
	if got := last.URL.RequestURI(); got != "/write?db=b&precision=ns" || user != "me" || password != "pass" {
		t.Errorf("%s as %s:%s", got, user, password)
	}
}
