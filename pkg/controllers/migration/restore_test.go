package migration_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// fail has the target's kubelet report that it cannot create the copy's container. containerd fails to start containers whose state CRIU
// cannot restore, and the kubelet starts them once more at once.
func (w *town) fail(reason string) {
	w.Helper()
	status := corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "criu failed"}}}
	if reason == "StartError" {
		status.RestartCount, status.State.Waiting = 1, &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 128, Reason: reason, Message: "criu failed"}
	}
	w.unready = true
	for _, p := range w.pods() {
		if p.Annotations[mcv1.AnnotationReplaces] == "" || p.Spec.NodeName == "" || len(p.Status.ContainerStatuses) > 0 {
			continue
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
		w.must(w.api.Status().Update(w.Context(), &p))
	}
}

// sicken has a pod be not ready.
func (w *town) sicken(i int) {
	w.Helper()
	p := w.pods()[i]
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.clock.Now())}}
	w.must(w.api.Status().Update(w.Context(), &p))
}

// probed has the pods of a town, which are made anew, have a liveness probe of that period.
func probed(found func(*town), seconds int32) func(*town) {
	return func(w *town) {
		w.probe = &corev1.Probe{PeriodSeconds: seconds, FailureThreshold: 3, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		found(w)
	}
}

// demanding is a town whose policy lets no pod begin anew.
func demanding(found func(*town)) func(*town) {
	return func(w *town) {
		found(w)
		w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{RequireState: true}}
	}
}

// A pod whose state would come along in part only begins anew, and it is said what would be lost.
func TestWhatStaysBehind(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*corev1.PodSpec){
		"container proxy is a sidecar": func(s *corev1.PodSpec) {
			s.InitContainers = append(s.InitContainers, corev1.Container{Name: "proxy", Image: "none", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)})
		},
		"what is in volume scratch stays behind": func(s *corev1.PodSpec) {
			claim := corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
			claim.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: amounts("1")[corev1.ResourceMemory]}
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim},
			}}})
		},
		"what is in volume secrets stays behind": func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "secrets", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.example.test"}}})
		},
	} {
		w := newTown(t, 1)
		w.change = change
		demanding(func(w *town) { w.rollout(1); w.able() })(w)
		w.asks(w.first(), by("Checkpoint"))
		if o := w.migrate(nil)[0]; o.Status.Phase != v1alpha1.MigrationRefused || !strings.Contains(o.Status.Message, says) {
			t.Errorf("it is %s: %s; want %s", o.Status.Phase, o.Status.Message, says)
		}
	}
}
