package chart

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Invocation is how a kubelet would run the controller.
type Invocation struct {
	// Args are the arguments, without the program.
	Args []string
	// Env is the environment, NAME=value.
	Env []string
	// Namespace and ServiceAccount are whom it runs as.
	Namespace, ServiceAccount string
}

// ControllerInvocation reads from the one Deployment of the chart how its one container is run. It
// is an error where a process outside a pod could not be run the same way: with volumes, or with a
// value that only a kubelet knows.
func ControllerInvocation(m Manifests) (Invocation, error) {
	deployments := m.OfKind("Deployment")
	if len(deployments) != 1 {
		return Invocation{}, fmt.Errorf("the chart renders %d Deployments, not one", len(deployments))
	}
	deployment, err := Decode[appsv1.Deployment](m, "Deployment", deployments[0].GetName())
	if err != nil {
		return Invocation{}, err
	}
	pod := deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		return Invocation{}, fmt.Errorf("the controller's pod has %d containers and %d init containers, not one",
			len(pod.Containers), len(pod.InitContainers))
	}
	if len(pod.Volumes) != 0 {
		return Invocation{}, fmt.Errorf("the controller's pod mounts volume %q, which a process outside a pod does not have", pod.Volumes[0].Name)
	}
	env, err := environment(&pod.Containers[0], deployment.Namespace)
	if err != nil {
		return Invocation{}, err
	}
	return Invocation{
		Args:           pod.Containers[0].Args,
		Env:            env,
		Namespace:      deployment.Namespace,
		ServiceAccount: pod.ServiceAccountName,
	}, nil
}

func environment(container *corev1.Container, namespace string) ([]string, error) {
	if len(container.EnvFrom) != 0 {
		return nil, fmt.Errorf("container %q takes its environment from other objects", container.Name)
	}
	env := make([]string, 0, len(container.Env))
	for _, variable := range container.Env {
		value, err := environmentValue(variable, container, namespace)
		if err != nil {
			return nil, fmt.Errorf("resolving environment variable %s: %w", variable.Name, err)
		}
		env = append(env, variable.Name+"="+value)
	}
	return env, nil
}

func environmentValue(variable corev1.EnvVar, container *corev1.Container, namespace string) (string, error) {
	source := variable.ValueFrom
	switch {
	case source == nil:
		return variable.Value, nil
	case source.FieldRef != nil && source.FieldRef.FieldPath == "metadata.namespace":
		return namespace, nil
	case source.ResourceFieldRef != nil:
		return resourceValue(source.ResourceFieldRef, container.Resources)
	default:
		return "", errors.New("its source is known to a kubelet only")
	}
}

// resourceValue divides as a kubelet does: in thousandths, and rounded up.
func resourceValue(ref *corev1.ResourceFieldSelector, resources corev1.ResourceRequirements) (string, error) {
	list, name, _ := strings.Cut(ref.Resource, ".")
	quantity, ok := map[string]corev1.ResourceList{"limits": resources.Limits, "requests": resources.Requests}[list][corev1.ResourceName(name)]
	if !ok {
		return "", fmt.Errorf("the container has no %s", ref.Resource)
	}
	divisor := ref.Divisor.MilliValue()
	if divisor == 0 {
		divisor = 1000
	}
	return strconv.FormatInt((quantity.MilliValue()+divisor-1)/divisor, 10), nil
}
