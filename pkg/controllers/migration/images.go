package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

const (
	// annotationImages is, on a pod that no owner recreates, the original images of its containers, in JSON. A pod that was moved with
	// its state has archives for images, which exist on one node and are not kept.
	annotationImages = v1alpha1.Group + "/images"
	// archived begins the images that agents make of archives, byID what names any image of a node by its ID, be it such a one.
	archived = "mainspring.local/checkpoint/"
	byID     = "sha256:"
)

// image of a container.
type image struct {
	Name   string            `json:"image"`
	Policy corev1.PullPolicy `json:"pull,omitempty"`
}

// recall has the twin of a pod be made of what that one was made of at first, and remembers it.
func recall(twin, source *corev1.Pod) {
	known := imagesOf(source)
	for i := range twin.Spec.Containers {
		c := &twin.Spec.Containers[i]
		if was, ok := known[c.Name]; ok && strings.HasPrefix(c.Image, archived) {
			c.Image, c.ImagePullPolicy = was.Name, was.Policy
		}
		known[c.Name] = image{c.Image, c.ImagePullPolicy}
	}
	if text, err := json.Marshal(known); err == nil { // of strings it is always nil
		twin.Annotations[annotationImages] = string(text)
	}
}

// imagesOf is what a pod remembers of its images.
func imagesOf(pod *corev1.Pod) map[string]image {
	known := map[string]image{}
	if json.Unmarshal([]byte(pod.Annotations[annotationImages]), &known) != nil || known == nil {
		return map[string]image{}
	}
	return known
}

// imageless returns why a pod that no owner recreates cannot be created anew; it is empty if it can.
func imageless(pod *corev1.Pod) string {
	known := imagesOf(pod)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if was := known[c.Name].Name; strings.HasPrefix(c.Image, archived) && (was == "" || strings.HasPrefix(was, archived)) {
			return fmt.Sprintf("container %s is made of an archive of its state, and annotation %s does not say of which image it was made before", c.Name, annotationImages)
		}
	}
	return ""
}

// stolen names a container of a pod about to be created whose image may be an archive of another pod's memory; it is empty if there is
// none. The API server lets only this controller create pods of archives. What users write in templates and annotations is copied into
// those pods.
func (m *migrate) stolen(ctx context.Context, task orchestration.Task, spec *corev1.PodSpec) (string, error) {
	var nc *v1alpha1.NodeCheckpoint
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if !strings.HasPrefix(c.Image, archived) && !strings.HasPrefix(c.Image, byID) {
			continue
		}
		var err error
		if nc == nil {
			if nc, err = m.nodeCheckpoint(ctx, task); err != nil {
				return "", err
			}
		}
		if nc == nil || !strings.HasPrefix(c.Image, archived+string(nc.UID)+":") {
			return fmt.Sprintf("container %s is of image %s, which may be what another pod had in memory", c.Name, c.Image), nil
		}
	}
	return "", nil
}
