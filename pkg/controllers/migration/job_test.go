package migration_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
)

// onDisruption has a Job do something when one of its pods is disrupted, as by an eviction.
func onDisruption(what batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{
		Action: what, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}
}

// onCodes has it do so when a container ends with one of those exit codes, or with another.
func onCodes(what batchv1.PodFailurePolicyAction, how batchv1.PodFailurePolicyOnExitCodesOperator, codes ...int32) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: what, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: how, Values: codes}}
}

// byRules are Jobs that may fail often, of each index, too, with that podFailurePolicy.
func byRules(list ...batchv1.PodFailurePolicyRule) batchv1.JobSpec {
	return batchv1.JobSpec{BackoffLimit: ptr.To[int32](6), PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: list}}
}

// A Job's pod is evicted where the Job, and the pod's index of it, go on after that. The first rule that matches decides; without one
// the former failures do.
func TestWhatAJobBears(t *testing.T) {
	t.Parallel()
	const (
		failJob, failIndex = batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionFailIndex
		ignore, count      = batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionCount
		in, notIn          = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	)
	byIndex := func(of int32, spec batchv1.JobSpec) batchv1.JobSpec {
		spec.BackoffLimitPerIndex = &of
		return spec
	}
	never := func(spec batchv1.JobSpec) batchv1.JobSpec {
		spec.BackoffLimit = ptr.To[int32](0)
		return spec
	}
	other := onCodes(failJob, in, 143)
	other.OnExitCodes.ContainerName = ptr.To("other")
	for name, c := range map[string]struct {
		spec     batchv1.JobSpec
		status   batchv1.JobStatus
		failures string
		ended    int32
		others   int32
		says     string
	}{
		"by default six fail":                  {status: batchv1.JobStatus{Failed: 5}},
		"by default no seventh does":           {status: batchv1.JobStatus{Failed: 6}, says: "and fail: let"},
		"those not counted yet count":          {status: batchv1.JobStatus{Failed: 5, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Failed: []types.UID{"x"}}}, says: "and fail: let"},
		"a sixth fails, with another":          {status: batchv1.JobStatus{Failed: 4}, others: 1},
		"another is the sixth":                 {status: batchv1.JobStatus{Failed: 5}, others: 1, says: "and fail: let"},
		"others do not count where ignored":    {spec: never(byRules(onDisruption(ignore))), others: 9},
		"no index bears one":                   {spec: byIndex(0, batchv1.JobSpec{}), says: "its index would fail"},
		"each index bears one":                 {spec: byIndex(1, batchv1.JobSpec{})},
		"each bears one, and this has had one": {spec: byIndex(1, batchv1.JobSpec{}), failures: "1", says: "its index would fail"},
		"an index has retries, the Job none":   {spec: never(byIndex(1, batchv1.JobSpec{})), says: "and fail: let"},
		"an unreadable count is none":          {spec: byIndex(1, batchv1.JobSpec{}), failures: "many"},
		"no index bears one, but this":         {spec: byIndex(0, byRules(onDisruption(ignore)))},
		"ignored":                              {spec: never(byRules(onDisruption(ignore)))},
		"ignored, but the Job fails first":     {spec: byRules(onDisruption(failJob), onDisruption(ignore)), says: "rule 0"},
		"ignored, but the index fails first":   {spec: byIndex(9, byRules(onCodes(count, in, 7), onDisruption(failIndex), onDisruption(ignore))), says: "index of Job once fails"},
		"ignored, but counted first":           {spec: never(byRules(onDisruption(count), onDisruption(ignore))), says: "and fail: let"},
		"counted first, and borne":             {spec: byRules(onDisruption(count), onDisruption(failJob))},
		"a code that no signal gives":          {spec: never(byRules(onCodes(failJob, in, 42), onDisruption(ignore)))},
		"the code of a signal":                 {spec: byRules(onCodes(failJob, in, 137), onDisruption(ignore)), says: "rule 0"},
		"all codes but one":                    {spec: byRules(onCodes(failJob, notIn, 42), onDisruption(ignore)), says: "rule 0"},
		"all codes but those of signals":       {spec: byRules(onCodes(failJob, notIn, 137, 143), onDisruption(ignore))},
		"of another container":                 {spec: byRules(other, onDisruption(ignore))},
		"a container has ended by that code":   {spec: byRules(onCodes(failJob, in, 42), onDisruption(ignore)), ended: 42, says: "rule 0"},
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: c.spec, Status: c.status}
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
		if c.failures != "" {
			pod.Annotations = map[string]string{batchv1.JobIndexFailureCountAnnotation: c.failures}
		}
		if c.ended != 0 {
			ended := corev1.ContainerStatus{Name: "sidecar", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: c.ended}}}
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, ended)
		}
		if got := migration.Fragile(job, pod, c.others); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}

func TestJobsOnAControlPlane(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	t.Run("one pod", c.jobs)
	t.Run("two pods", c.pair)
	t.Run("pods that a Job does not count", c.untracked)
}

// jobs are Kubernetes' own Jobs: those that would fail by an eviction keep their pods, and the others make them again.
func (c *cluster) jobs(t *testing.T) {
	indexed := batchv1.JobSpec{CompletionMode: ptr.To(batchv1.IndexedCompletion), Completions: ptr.To[int32](1), BackoffLimitPerIndex: ptr.To[int32](0)}
	retried := *indexed.DeepCopy()
	retried.BackoffLimitPerIndex = ptr.To[int32](1)
	for name, j := range map[string]struct {
		spec batchv1.JobSpec
		// moves are how often its pod goes before it is refused; says is with what words.
		moves int
		says  string
	}{
		"once":    {batchv1.JobSpec{BackoffLimit: ptr.To[int32](0)}, 0, "would count the pod as failed, and fail"},
		"strict":  {byRules(onDisruption(batchv1.PodFailurePolicyActionFailJob), onDisruption(batchv1.PodFailurePolicyActionIgnore)), 0, "rule 0 of its podFailurePolicy"},
		"indexed": {indexed, 0, "its index would fail"},
		"retried": {retried, 1, "its index would fail"},
		"often":   {batchv1.JobSpec{BackoffLimit: ptr.To[int32](1)}, 1, "would count the pod as failed, and fail"},
	} {
		j.spec.Template = template(name)
		j.spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		c.must(c.api.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: j.spec}))
		for range j.moves {
			source := c.runs(name, 1)[0]
			c.cordon(source.Spec.NodeName, true)
			expectOutcome(t, c.moved(source, elsewhere(source), ""), "Succeeded", "Restart", "")
			c.cordon(source.Spec.NodeName, false)
		}
		expectOutcome(t, c.moved(c.runs(name, 1)[0], "", ""), "Refused", "", j.says)
	}
}

// pair is a Job of which one pod may fail, and both are to be moved at once: one is, to wherever the scheduler puts it, and the Job goes
// on.
func (c *cluster) pair(t *testing.T) {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pair"},
		Spec:       batchv1.JobSpec{Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](2), BackoffLimit: ptr.To[int32](1), Template: template("pair")},
	}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	c.must(c.api.Create(t.Context(), job))
	var list []*v1alpha1.PodMigration
	for _, p := range c.runs("pair", 2) {
		o := &v1alpha1.PodMigration{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "pair-"},
			Spec:       v1alpha1.PodMigrationSpec{PodName: p.Name, TargetNode: elsewhere(p), Strategy: v1alpha1.StrategyRestart},
		}
		c.must(c.api.Create(t.Context(), o))
		list = append(list, o)
	}
	phases := map[v1alpha1.MigrationPhase]string{}
	for _, o := range list {
		c.soon("the migration of "+o.Spec.PodName+" is over", func() bool {
			c.must(c.api.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			return o.Status.Phase.Over()
		})
		phases[o.Status.Phase] = o.Status.Message
	}
	c.must(c.api.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	if len(job.Status.Conditions) > 0 || job.Status.Failed != 1 || len(c.runs("pair", 2)) != 2 {
		t.Errorf("the Job's status: %+v", job.Status)
	}
	if len(phases) != 2 || !strings.Contains(phases["Refused"], "would count the pod as failed, and fail") {
		t.Errorf("%v", phases)
	}
}
