package webhooks

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// settings are the annotations that repeat a McKube's budget; they may be written by hand, but not
// otherwise than it says.
var settings = []string{mcv1.AnnotationPeriod, mcv1.AnnotationRuntimeLow, mcv1.AnnotationRuntimeHi}

// settingsOf is what they must be.
func settingsOf(list []binding) map[string]string {
	period, low, hi := map[string]string{}, map[string]string{}, map[string]string{}
	for _, b := range list {
		s := b.mckube.Spec.RTSettings
		period[b.container] = strconv.FormatInt(s.Period, 10)
		low[b.container] = strconv.FormatInt(s.RuntimeLow, 10)
		hi[b.container] = strconv.FormatInt(s.RuntimeHi, 10)
	}
	return map[string]string{
		mcv1.AnnotationPeriod:     mcv1.FormatValues(period),
		mcv1.AnnotationRuntimeLow: mcv1.FormatValues(low),
		mcv1.AnnotationRuntimeHi:  mcv1.FormatValues(hi),
	}
}

// annotate writes the settings where the user has not, and the state of a pod that is on no core yet, also over the
// state of the pod that this one was copied from.
func annotate(pod *corev1.Pod, list []binding) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[mcv1.AnnotationPending] = "true"
	delete(pod.Annotations, mcv1.AnnotationConfigured)
	delete(pod.Annotations, mcv1.AnnotationPreempting)
	delete(pod.Annotations, mcv1.AnnotationPreemptionRest)
	if len(list) == 0 {
		return
	}
	for key, value := range settingsOf(list) {
		if _, given := pod.Annotations[key]; !given {
			pod.Annotations[key] = value
		}
	}
	current, core := map[string]string{}, map[string]string{}
	for _, b := range list {
		current[b.container], core[b.container] = mckubev1alpha1.LevelLow, ""
		if preferred := b.mckube.Spec.RTSettings.Core; preferred != nil {
			core[b.container] = *preferred
		}
	}
	pod.Annotations[mcv1.AnnotationCurrent] = mcv1.FormatValues(current)
	pod.Annotations[mcv1.AnnotationCore] = mcv1.FormatValues(core)
}
