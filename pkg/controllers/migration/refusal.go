package migration

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Reasons of condition Admitted.
const (
	ReasonAdmitted          = "Admitted"
	ReasonDryRun            = "DryRun"
	ReasonUnwanted          = "Unwanted"
	ReasonNotReady          = "NotReady"
	ReasonPodNotSeen        = "PodNotSeen"
	ReasonWaitsForLimit     = "WaitsForLimit"
	ReasonWaitsForNode      = "WaitsForNode"
	ReasonWaitedTooLong     = "WaitedTooLong"
	ReasonStandsStill       = "StandsStill"
	ReasonPodNotFound       = "PodNotFound"
	ReasonPodReplaced       = "PodReplaced"
	ReasonPodEnding         = "PodEnding"
	ReasonPodFinished       = "PodFinished"
	ReasonPodNotRunning     = "PodNotRunning"
	ReasonDaemonSet         = "DaemonSet"
	ReasonStaticPod         = "StaticPod"
	ReasonDoNotDisrupt      = "DoNotDisrupt"
	ReasonNodeLocalVolume   = "NodeLocalVolume"
	ReasonAlreadyMigrating  = "AlreadyMigrating"
	ReasonNamespaceExcluded = "NamespaceExcluded"
	ReasonMcKubeNever       = "McKubeNever"
	ReasonNoOwner           = "NoOwner"
	ReasonGovernedByName    = "GovernedByName"
	ReasonNotBound          = "NotBound"
	ReasonImageUnknown      = "ImageUnknown"
	ReasonOwnerWantsNone    = "OwnerWantsNone"
	ReasonSurgeImpossible   = "SurgeImpossible"
	ReasonStateImpossible   = "StateImpossible"
	ReasonTargetRefused     = "TargetRefused"
	ReasonNoTarget          = "NoTarget"
	ReasonPolicyDenied      = "PolicyDenied"
	ReasonQueueRefused      = "QueueRefused"
)

// ReasonRestoreFailed is the reason of condition State when the pod begins anew because its state could not be restored.
const ReasonRestoreFailed = "RestoreFailed"

// ReasonStateStayed is that of condition State of a migration that was undone: nothing was taken along, and nothing is lost.
const ReasonStateStayed = "Stayed"

// ReasonStateLost is the reason of condition State when the state is lost in another way, as of a pod that has ended while it stood still.
const ReasonStateLost = "StateLost"

// refusal is why a pod is not migrated: a word, and the same for people.
type refusal struct{ reason, message string }

// vetoes are asked in this order; the first that says something decides.
var vetoes = []func(o *v1alpha1.PodMigration, pod *corev1.Pod) *refusal{replaced, terminating, ended, placeless, ofDaemonSet, static, protected, local}

// immobile is why a pod cannot be moved, whatever by; nil: it may be. It goes by the two objects alone.
func immobile(o *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	for _, veto := range vetoes {
		if no := veto(o, pod); no != nil {
			return no
		}
	}
	return nil
}

func replaced(o *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	if o.Spec.PodUID == "" || o.Spec.PodUID == pod.UID {
		return nil
	}
	return &refusal{ReasonPodReplaced, fmt.Sprintf("pod %s has uid %s, and %s was meant", pod.Name, pod.UID, o.Spec.PodUID)}
}

func terminating(_ *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	if pod.DeletionTimestamp == nil {
		return nil
	}
	return &refusal{ReasonPodEnding, "the pod is being deleted"}
}

func ended(_ *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	if !finished(pod) {
		return nil
	}
	return &refusal{ReasonPodFinished, "the pod has finished"}
}

func placeless(_ *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	if pod.Spec.NodeName != "" {
		return nil
	}
	return &refusal{ReasonPodNotRunning, "the pod has no node yet"}
}

func ofDaemonSet(_ *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	if by := metav1.GetControllerOf(pod); by == nil || by.Kind != "DaemonSet" {
		return nil
	}
	return &refusal{ReasonDaemonSet, "a DaemonSet makes its pod again on the same node"}
}

func static(_ *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	by := metav1.GetControllerOf(pod)
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror && (by == nil || by.Kind != "Node") {
		return nil
	}
	return &refusal{ReasonStaticPod, "the pod is in a file of its node's kubelet"}
}

// protected: its author wants it left alone, but where it would be worse off, or a user asks for this very pod.
func protected(o *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	if pod.Annotations[karpenterv1.DoNotDisruptAnnotationKey] != "true" || o.Spec.Trigger.Protective() || o.Spec.Trigger == v1alpha1.TriggerManual {
		return nil
	}
	return &refusal{ReasonDoNotDisrupt, fmt.Sprintf("the pod has annotation %s", karpenterv1.DoNotDisruptAnnotationKey)}
}

// local: what is in a directory of the node stays there. A user who requests the migration of this very pod knows what is in it.
func local(o *v1alpha1.PodMigration, pod *corev1.Pod) *refusal {
	if o.Spec.Trigger.Protective() || o.Spec.Trigger == v1alpha1.TriggerManual {
		return nil
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			return &refusal{ReasonNodeLocalVolume, fmt.Sprintf("volume %s is a directory of the pod's node", v.Name)}
		}
	}
	return nil
}

// isReplicaSet tells whether a ReplicaSet makes the pod again.
func isReplicaSet(pod *corev1.Pod) bool {
	by := metav1.GetControllerOf(pod)
	return by != nil && by.Kind == "ReplicaSet" && by.APIVersion == appsv1.SchemeGroupVersion.String()
}
