// Package engine is a small policy engine for migrations, as the SDI Migration Service asks one and Mainspring does: an
// example to start from. It decides by mixed criticality and by what pods say of themselves in the MALE vocabulary
// (mission, accuracy, latency, energy).
//
// Safety (criticality High, class C) moves only to be protected. Mission (Middle, B) moves too when somebody asks for it or
// its node is under pressure, but for no one's gain where its score is high. Best effort (Low, A) always moves.
package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/policy/male"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// The paths that it serves.
const (
	PathPolicy = "/api/v1/migration/policy"
	PathHealth = "/health"
)

// mostBody is how many bytes a question may have.
const mostBody = 1 << 20

// Question is the body of a request. What is not known is ignored.
type Question struct {
	Pod struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		NodeName  string            `json:"node_name"`
		Labels    map[string]string `json:"labels"`
		Male      map[string]string `json:"male"`
	} `json:"pod"`
	SourceNode string `json:"source_node"`
	TargetNode string `json:"target_node"`
	// Trigger and Criticality are not sent by the SDI Migration Service, which moves pods for resource pressure.
	Trigger     string `json:"trigger"`
	Criticality string `json:"criticality"`
}

// Answer is what is answered.
type Answer struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"`
}

// Engine is the policy.
type Engine struct {
	Weights male.Weights
	// Keep is the score from which mission pods are not moved for cost, power or tidiness.
	Keep float64
}

// Default weighs as the SDI projects' sample policy does, and keeps what is male-high or more.
var Default = Engine{Weights: male.DefaultWeights, Keep: 0.6}

// Handler serves the policy, and GET /health.
func (e Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathHealth, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("POST "+PathPolicy, e.serve)
	return mux
}

func (e Engine) serve(w http.ResponseWriter, r *http.Request) {
	q, err := read(http.MaxBytesReader(w, r.Body, mostBody))
	tooBig := &http.MaxBytesError{}
	switch {
	case errors.As(err, &tooBig):
		reply(w, http.StatusRequestEntityTooLarge, map[string]string{"error": err.Error()})
	case err != nil:
		reply(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
	default:
		reply(w, http.StatusOK, e.Decide(q))
	}
}

func read(body io.Reader) (Question, error) {
	q := Question{}
	d := json.NewDecoder(body)
	if err := d.Decode(&q); err != nil {
		return q, fmt.Errorf("reading the question: %w", err)
	}
	if d.More() {
		return q, errors.New("reading the question: something follows it")
	}
	if q.Pod.Name == "" || q.SourceNode == "" {
		return q, errors.New("reading the question: pod.name and source_node must be given")
	}
	return q, nil
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) //nolint:errcheck // whoever went away needs no answer
}

// Decide answers a question.
func (e Engine) Decide(q Question) Answer {
	if q.TargetNode == q.SourceNode {
		return Answer{Reason: fmt.Sprintf("the pod is on node %s already", q.SourceNode)}
	}
	v, err := male.Of(q.Pod.Labels, q.Pod.Male)
	if err != nil {
		return Answer{Reason: "what the pod says of itself cannot be read: " + err.Error()}
	}
	level := v.Class().Criticality()
	if c, err := rt.ParseCriticality(q.Criticality); err == nil {
		level = max(level, c) // of a McKube and of MALE the more critical counts
	}
	trigger := v1alpha1.MigrationTrigger(q.Trigger)
	if trigger == "" {
		trigger = v1alpha1.TriggerResourcePressure
	}
	score := v.Score(e.Weights)
	switch {
	case trigger.Protective():
		return Answer{Allowed: true, Reason: fmt.Sprintf("it is moved for its own sake (%s)", trigger)}
	case level == rt.High:
		return Answer{Reason: fmt.Sprintf("safety work is moved only to be protected, and not for %s", trigger)}
	case level == rt.Middle && gain(trigger) && score >= e.Keep:
		return Answer{Reason: fmt.Sprintf("its score of %.2f is at least %.2f: it is not moved for %s", score, e.Keep, trigger)}
	}
	return Answer{Allowed: true, Reason: fmt.Sprintf("criticality %s with a score of %.2f may move for %s", level, score, trigger)}
}

// gain tells whether it is for somebody else's.
func gain(t v1alpha1.MigrationTrigger) bool {
	switch t {
	case v1alpha1.TriggerCost, v1alpha1.TriggerPower, v1alpha1.TriggerConsolidation, v1alpha1.TriggerDrift, v1alpha1.TriggerExpiration:
		return true
	}
	return false
}
