package policy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/policy/engine"
	"github.com/mainspring-rt/mainspring/pkg/policy/male"
)

// Values of MigrationDecision.Engine: what an engine said.
const (
	EngineAllow = "Allow"
	EngineDeny  = "Deny"
	// EngineErrorOpen gave no answer, and the migration is allowed all the same; EngineErrorClosed, and it is not.
	EngineErrorOpen   = "ErrorOpen"
	EngineErrorClosed = "ErrorClosed"
	// EngineTimeout gave none in time; what counts is in the decision.
	EngineTimeout = "Timeout"
	// EngineCached is an answer of seconds ago; what it was is in the decision.
	EngineCached = "Cached"
)

// mostReason is how many bytes of a reason a decision keeps.
const mostReason = 1024

// Options of a Judge. Client, Secrets and Clock are required.
type Options struct {
	// Client reads MigrationPolicies and namespaces, from a cache.
	Client client.Reader
	// Secrets reads the tokens of engines, from Namespace.
	Secrets   client.Reader
	Namespace string
	Clock     clock.PassiveClock
	// Default is the engine that is asked where a policy has none of its own, or there is no policy; nil: none.
	Default *v1alpha1.PolicyEngine
}

// Judge decides by the MigrationPolicies of a cluster. It is safe for concurrent use.
type Judge struct {
	Options
	lock     sync.Mutex
	compiled map[types.UID]known
	engines  map[types.UID]reachable
}

// known is a policy as it was compiled last.
type known struct {
	generation int64
	policy     *Compiled
	problem    error
}

// reachable is the client of an engine, as it was configured.
type reachable struct {
	config v1alpha1.PolicyEngine
	client *engine.Engine
}

// NewJudge makes one; it reads nothing yet.
func NewJudge(o Options) *Judge {
	return &Judge{Options: o, compiled: map[types.UID]known{}, engines: map[types.UID]reachable{}}
}

// For is the policy that holds for a pod; nil: none does.
func (j *Judge) For(ctx context.Context, pod *corev1.Pod) (*v1alpha1.MigrationPolicy, error) {
	list := &v1alpha1.MigrationPolicyList{}
	if err := j.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing MigrationPolicies: %w", err)
	}
	j.forget(list.Items)
	if len(list.Items) == 0 {
		return nil, nil
	}
	namespace := &corev1.Namespace{}
	if err := j.Client.Get(ctx, types.NamespacedName{Name: pod.Namespace}, namespace); err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", pod.Namespace, err)
	}
	return Select(list.Items, pod.Labels, namespace.Labels), nil
}

// Decide says whether the pod may be migrated: its policy's windows and rules, then the engine. It says nothing about
// limits. The error means that the cluster could not be read; nothing is decided then.
func (j *Judge) Decide(ctx context.Context, q Question) (v1alpha1.MigrationDecision, error) {
	began := j.Clock.Now()
	p, err := j.For(ctx, q.Pod)
	if err != nil {
		return v1alpha1.MigrationDecision{}, err
	}
	decision, asked := j.decide(ctx, p, q)
	decision.LatencyMilliseconds = j.Clock.Since(began).Milliseconds()
	decision.Reason = cut(decision.Reason)
	count(asked, decision)
	return decision, nil
}

// decide also says whose engine was asked.
func (j *Judge) decide(ctx context.Context, p *v1alpha1.MigrationPolicy, q Question) (v1alpha1.MigrationDecision, string) {
	if p == nil {
		decision := v1alpha1.MigrationDecision{Allowed: true, Reason: "no MigrationPolicy selects the pod"}
		if j.Default == nil {
			return decision, metrics.EngineNone
		}
		return j.consult(ctx, decision, consulted{id: "", config: j.Default}, q), metrics.EngineDefault
	}
	c, err := j.compile(p)
	if err != nil {
		return v1alpha1.MigrationDecision{Policy: p.Name, Reason: fmt.Sprintf("%s cannot be used: %s", title(p), err)}, metrics.EngineNone
	}
	v := c.Decide(ctx, q)
	decision := v1alpha1.MigrationDecision{Policy: p.Name, Rule: v.Rule, Allowed: v.Allowed, Reason: fmt.Sprintf("%s: %s", title(p), v.Reason)}
	switch {
	case !v.Allowed:
		return decision, metrics.EngineNone
	case p.Spec.PolicyEngine != nil:
		return j.consult(ctx, decision, consulted{id: p.UID, config: p.Spec.PolicyEngine}, q), metrics.EnginePolicy
	case j.Default != nil:
		return j.consult(ctx, decision, consulted{id: "", config: j.Default}, q), metrics.EngineDefault
	}
	return decision, metrics.EngineNone
}

// consulted is an engine: that of the policy with the UID, or the default one.
type consulted struct {
	id     types.UID
	config *v1alpha1.PolicyEngine
}

// consult asks the engine about what the rules allow.
func (j *Judge) consult(ctx context.Context, decision v1alpha1.MigrationDecision, of consulted, q Question) v1alpha1.MigrationDecision {
	client, err := j.engine(of)
	var answer engine.Answer
	if err == nil {
		answer, err = client.Ask(ctx, question(q))
	}
	if err == nil {
		decision.Allowed, decision.Engine = answer.Allowed, EngineDeny
		switch {
		case answer.Cached:
			decision.Engine = EngineCached
		case answer.Allowed:
			decision.Engine = EngineAllow
		}
		decision.Reason = strings.TrimSuffix("the policy engine says: "+answer.Reason, ": ")
		return decision
	}
	failure := failurePolicy(of.config.FailurePolicy, q.Trigger)
	decision.Allowed = failure != v1alpha1.FailureDeny
	decision.Engine = EngineErrorClosed
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		decision.Engine = EngineTimeout
	case decision.Allowed:
		decision.Engine = EngineErrorOpen
	}
	decision.Reason = fmt.Sprintf("%s; failurePolicy is %s for trigger %s", err, failure, q.Trigger)
	return decision
}

// failurePolicy of an engine, where it is not said: protective migrations go on as the rules say, all others do not.
func failurePolicy(given v1alpha1.FailurePolicy, trigger v1alpha1.MigrationTrigger) v1alpha1.FailurePolicy {
	switch {
	case given != "":
		return given
	case trigger.Protective():
		return v1alpha1.FailureRules
	}
	return v1alpha1.FailureDeny
}

// question is what an engine is told.
func question(q Question) engine.Question {
	out := engine.Question{
		Pod: engine.Pod{
			Name: q.Pod.Name, Namespace: q.Pod.Namespace, NodeName: q.Pod.Spec.NodeName, Labels: q.Pod.Labels, Male: map[string]string{},
		},
		Trigger: string(q.Trigger), UID: q.Pod.UID,
	}
	if out.Pod.Labels == nil {
		out.Pod.Labels = map[string]string{} // an object, as of the SDI Migration Service, never null
	}
	for key, value := range q.Pod.Annotations {
		if strings.HasPrefix(key, male.Prefix) {
			out.Pod.Male[key] = value
		}
	}
	if q.Source != nil {
		out.SourceNode = q.Source.Name
	}
	if q.Target != nil {
		out.TargetNode = q.Target.Name
	}
	if q.McKube != nil {
		out.Criticality = criticality(q.McKube.Spec.Criticality).(string)
	}
	return out
}

// compile is done once for each generation of a policy.
func (j *Judge) compile(p *v1alpha1.MigrationPolicy) (*Compiled, error) {
	j.lock.Lock()
	defer j.lock.Unlock()
	if k, ok := j.compiled[p.UID]; ok && k.generation == p.Generation {
		return k.policy, k.problem
	}
	c, errs := Compile(&p.Spec)
	k := known{generation: p.Generation, policy: c, problem: errs.ToAggregate()}
	j.compiled[p.UID] = k
	return k.policy, k.problem
}

// engine is the client, with its connections, its breaker and its answers, until the configuration changes.
func (j *Judge) engine(of consulted) (*engine.Engine, error) {
	j.lock.Lock()
	defer j.lock.Unlock()
	old, ok := j.engines[of.id]
	if ok && same(old.config, *of.config) {
		return old.client, nil
	}
	config := engine.Config{URL: of.config.URL, CABundle: of.config.CABundle, Clock: j.Clock}
	if t := of.config.Timeout; t != nil {
		config.Timeout = t.Duration
	}
	if s := of.config.TokenSecret; s != nil {
		config.Token = func(ctx context.Context) (string, error) { return j.Token(ctx, of.config.URL, *s) }
	}
	fresh, err := engine.New(config)
	if err != nil {
		return nil, err
	}
	if ok {
		old.client.Close()
	}
	j.engines[of.id] = reachable{config: *of.config.DeepCopy(), client: fresh}
	return fresh, nil
}

// Token reads the bearer token for an engine. The author of a policy names both, so the Secret's own annotation says to which hosts its tokens may go.
// The error never holds what is in the Secret.
func (j *Judge) Token(ctx context.Context, engineURL string, s v1alpha1.SecretKey) (string, error) {
	secret := &corev1.Secret{}
	if err := j.Secrets.Get(ctx, types.NamespacedName{Namespace: j.Namespace, Name: s.Name}, secret); err != nil {
		return "", fmt.Errorf("reading Secret %s/%s: %w", j.Namespace, s.Name, err)
	}
	address, err := url.Parse(engineURL)
	if err != nil || !slices.Contains(strings.FieldsFunc(secret.Annotations[v1alpha1.TokenHostsAnnotation], isSeparator), address.Host) || address.Host == "" {
		return "", fmt.Errorf("reading Secret %s/%s: its annotation %s does not name the engine's host; add the host, with its port as spec.policyEngine.url has it, if the token may be sent there",
			j.Namespace, s.Name, v1alpha1.TokenHostsAnnotation)
	}
	token := strings.TrimSpace(string(secret.Data[s.Key]))
	if token == "" || strings.ContainsAny(token, "\r\n\x00") {
		return "", fmt.Errorf("reading Secret %s/%s: key %s holds no token", j.Namespace, s.Name, s.Key)
	}
	return token, nil
}

// isSeparator reports whether a character is between two hosts of an annotation.
func isSeparator(r rune) bool { return r == ',' || r == ' ' }

// forget lets go of policies that are gone.
func (j *Judge) forget(all []v1alpha1.MigrationPolicy) {
	j.lock.Lock()
	defer j.lock.Unlock()
	if len(j.compiled)+len(j.engines) <= len(all) {
		return
	}
	there := map[types.UID]bool{"": true}
	for i := range all {
		there[all[i].UID] = true
	}
	for uid := range j.compiled {
		if !there[uid] {
			delete(j.compiled, uid)
		}
	}
	for uid, e := range j.engines {
		if !there[uid] {
			e.client.Close()
			delete(j.engines, uid)
		}
	}
}
