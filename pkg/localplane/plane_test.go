package localplane_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
)

func TestQuick(t *testing.T) {
	p, err := localplane.Start(t.Context(), localplane.Options{Bin: bin, Progress: os.Stderr, Scheduler: true, ControllerManager: true, Kwok: true, Dir: os.Getenv("LP_DIR")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	c := kubernetes.NewForConfigOrDie(p.RESTConfig())
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{localplane.NodeLabel: localplane.NodeLabelValue}}}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		got, err := c.CoreV1().Pods("default").Get(ctx, "p1", metav1.GetOptions{})
		return err == nil && got.Status.Phase == corev1.PodRunning, nil
	})
	t.Log(time.Since(start), err)
	if os.Getenv("LP_WAIT") != "" {
		time.Sleep(10 * time.Minute)
	}
	start = time.Now()
	t.Log(p.Stop(), time.Since(start))
}
