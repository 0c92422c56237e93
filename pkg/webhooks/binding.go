package webhooks

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// binding is a container with the McKube that governs it.
type binding struct {
	container string
	mckube    *mcv1.McKube
	server    rt.Server
}

// bind finds the containers of pod that McKubes with settings govern; of two for one container, the first
// does. The error names every McKube whose container is not in the pod or not told, and every container
// with two McKubes.
func bind(pod *corev1.Pod, mckubes []*mcv1.McKube) ([]binding, error) {
	var list []binding
	var problems []error
	governor := map[string]string{}
	for _, m := range mckubes {
		if m.Spec.RTSettings == nil {
			continue
		}
		b, err := bindOne(pod, m)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if other, taken := governor[b.container]; taken {
			problems = append(problems, fmt.Errorf("container %s is governed by the McKubes %s and %s; it must be one, so delete or narrow the other",
				b.container, other, m.Name))
			continue
		}
		governor[b.container] = m.Name
		list = append(list, b)
	}
	return list, errors.Join(problems...)
}

func bindOne(pod *corev1.Pod, m *mcv1.McKube) (binding, error) {
	container, err := mcv1.ContainerOf(m, pod)
	if err != nil {
		return binding{}, err
	}
	server, err := rtdra.ServerOf(m, pod.UID, container)
	if err != nil {
		return binding{}, err
	}
	return binding{container, m, server}, nil
}

// criticality is the highest of the bindings.
func criticality(list []binding) rt.Criticality {
	highest := rt.Low
	for _, b := range list {
		highest = max(highest, b.server.Criticality)
	}
	return highest
}

// nodeOf is the node that the McKubes bind the pod to; empty for any.
func nodeOf(list []binding) (string, error) {
	node, by := "", ""
	for _, b := range list {
		wanted := mcv1.UserNode(b.mckube)
		if wanted == "" {
			continue
		}
		if node != "" && node != wanted {
			return "", fmt.Errorf("spec.node of McKube %s is %q and that of McKube %s is %q; a pod's McKubes must name the same node",
				by, node, b.mckube.Name, wanted)
		}
		node, by = wanted, b.mckube.Name
	}
	return node, nil
}
