package environment

import (
	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EventuallyEvent expects that, since the spec began, an Event with the reason was made about an
// object of that name, with a message that contains text.
func (env *Environment) EventuallyEvent(about client.Object, reason, text string) {
	GinkgoHelper()
	Eventually(func() []string { return messages(env.recorder.History().Events(reason, about.GetName())) }).
		Should(ContainElement(ContainSubstring(text)), "Event %s about %s", reason, about.GetName())
}

// EventuallyAnyEvent is EventuallyEvent about any object.
func (env *Environment) EventuallyAnyEvent(reason, text string) {
	GinkgoHelper()
	Eventually(func() []string { return messages(env.recorder.History().Events(reason, "")) }).
		Should(ContainElement(ContainSubstring(text)), "Event %s", reason)
}

func messages(events []*corev1.Event) []string {
	var list []string
	for _, e := range events {
		list = append(list, e.Message)
	}
	return list
}
