package sink_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/sink"
	"github.com/mainspring-rt/mainspring/pkg/influx"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/test/influxd"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

var over = metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))

func migration(phase v1alpha1.MigrationPhase) *v1alpha1.PodMigration {
	return &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(over.Add(-time.Minute))},
		Spec:       v1alpha1.PodMigrationSpec{PodName: "web-0", TargetNode: "edge-2"},
		Status: v1alpha1.PodMigrationStatus{Phase: phase, CompletionTime: &over, Source: &v1alpha1.MigrationEnd{PodName: "web-0", Node: "edge-1"},
			Target: &v1alpha1.MigrationEnd{PodName: "web-0-copy", Node: "edge-3"}},
	}
}

func TestThePointIsThatOfTheSDIMigrationService(t *testing.T) {
	t.Parallel()
	for phase, success := range map[v1alpha1.MigrationPhase]string{
		v1alpha1.MigrationSucceeded: "true", v1alpha1.MigrationSucceededWithoutState: "false", v1alpha1.MigrationFailed: "false",
		v1alpha1.MigrationRolledBack: "false", v1alpha1.MigrationAborted: "false", v1alpha1.MigrationRefused: "false",
	} {
		p, ok := sink.PointOf(migration(phase))
		line, err := p.Line()
		want := "pod_migration,pod_name=web-0,source_node=edge-1,success=" + success + ",target_node=edge-3 migration_count=1i 1767323045000006000"
		if !ok || err != nil || line != want {
			t.Errorf("%s: %v\n got %s\nwant %s", phase, err, line, want)
		}
	}
	for _, phase := range []v1alpha1.MigrationPhase{"", v1alpha1.MigrationPending, v1alpha1.MigrationCuttingOver, v1alpha1.MigrationRollingBack} {
		if _, ok := sink.PointOf(migration(phase)); ok {
			t.Errorf("%s is written", phase)
		}
	}
	dry := migration(v1alpha1.MigrationSucceeded)
	dry.Spec.DryRun = true
	if _, ok := sink.PointOf(dry); ok {
		t.Error("a dry run is written")
	}
	refused := migration(v1alpha1.MigrationRefused)
	refused.Status.Source, refused.Status.Target, refused.Status.CompletionTime, refused.Spec.TargetNode = nil, nil, nil, ""
	p, _ := sink.PointOf(refused)
	if line, err := p.Line(); err != nil || !strings.HasPrefix(line, "pod_migration,pod_name=web-0,success=false migration_count=1i 17673229") {
		t.Errorf("%v: %s", err, line)
	}
}

type broken struct{}

func (broken) Add(influx.Point) error { return errors.New("no") }

// One point for each migration that is over, whichever process hands it over, on a real API server and a real InfluxDB.
func TestOnePointForEachMigrationThatIsOver(t *testing.T) {
	server := influxd.Start(t, "turtlebot")
	api := apiserver.Client(t, apiserver.Scheme(t))
	t.Cleanup(func() { apiserver.Empty(t, api, &v1alpha1.PodMigrationList{}) })
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sink-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	var requests []reconcile.Request
	for i, phase := range []v1alpha1.MigrationPhase{v1alpha1.MigrationSucceeded, v1alpha1.MigrationRolledBack, v1alpha1.MigrationRestoring} {
		m := migration(phase)
		m.ObjectMeta = metav1.ObjectMeta{Namespace: namespace.Name, Name: fmt.Sprint("m", i)}
		status := m.Status
		if err := api.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		m.Status = status
		if err := api.Status().Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	}
	requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace.Name, Name: "gone"}})
	for range 2 { // processes
		limits := influx.Defaults()
		writer := influx.NewWriter(&influx.Client{URL: server.URL, Bucket: "turtlebot", Mode: influx.ModeV1, HTTP: http.DefaultClient}, limits, clock.RealClock{})
		c := &sink.Controller{Client: api, Writer: writer}
		for range 2 {
			for _, r := range requests {
				if _, err := c.Reconcile(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := writer.Start(ended); err != nil { // sends what is left
			t.Fatal(err)
		}
	}
	rows := server.Ask("turtlebot", `SELECT sum(migration_count) FROM pod_migration GROUP BY success`)
	got := fmt.Sprint(len(rows))
	for _, r := range rows {
		got += fmt.Sprintf(" %s:%v", r.Tags["success"], r.Values[0][1].(json.Number))
	}
	if got != "2 false:1 true:1" {
		t.Errorf("stored %s", got)
	}
	if _, err := (&sink.Controller{Client: api, Writer: broken{}}).Reconcile(t.Context(), requests[0]); !errors.Is(err, reconcile.TerminalError(nil)) {
		t.Errorf("got %v", err)
	}
}
