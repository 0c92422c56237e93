// Machine is a power driver for simulated machines: switching one on makes its Node join, with a kubelet that kwok
// plays. It is called as the inventory provider calls programs,
//
//	machine on|off|restart|status NAME DIRECTORY KUBECONFIG
//
// and keeps what it knows in DIRECTORY: NAME.power is whether the machine is on, NAME.calls what was asked of it. A
// scenario breaks a machine by files there: with NAME.dead its Node never joins, with NAME.hung no call returns, with
// NAME.stuck it does not go off.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: machine on|off|restart|status NAME DIRECTORY KUBECONFIG")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m := machine{name: os.Args[2], dir: os.Args[3], kubeconfig: os.Args[4]}
	if err := m.do(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type machine struct{ name, dir, kubeconfig string }

func (m machine) file(kind string) string { return filepath.Join(m.dir, m.name+"."+kind) }

func (m machine) has(kind string) bool {
	_, err := os.Stat(m.file(kind))
	return err == nil
}

func (m machine) do(ctx context.Context, action string) error {
	if err := m.note(action); err != nil {
		return err
	}
	if m.has("hung") {
		<-ctx.Done()
		return ctx.Err()
	}
	switch action {
	case "on", "restart":
		return m.start(ctx)
	case "off":
		if m.has("stuck") {
			return fmt.Errorf("%s does not go off", m.name)
		}
		return m.switchTo("off")
	}
	power, err := os.ReadFile(m.file("power"))
	if err != nil {
		power = []byte("off")
	}
	fmt.Println(string(power))
	return nil
}

// note writes down what was asked.
func (m machine) note(action string) error {
	calls, err := os.OpenFile(m.file("calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer calls.Close()
	_, err = fmt.Fprintln(calls, action)
	return err
}

func (m machine) switchTo(state string) error {
	return os.WriteFile(m.file("power"), []byte(state), 0o600)
}

func (m machine) start(ctx context.Context) error {
	if err := m.switchTo("on"); err != nil || m.has("dead") {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := kube.CoreV1().Nodes().Create(ctx, m.node(), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return m.again(ctx, kube)
}

// again is a new boot of a machine whose Node is there already: another boot ID, and a kubelet that is well.
func (m machine) again(ctx context.Context, kube kubernetes.Interface) error {
	booted := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, uuid.NewUUID())
	if _, err := kube.CoreV1().Nodes().Patch(ctx, m.name, types.MergePatchType, booted, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	well := []byte(`{"metadata":{"labels":{"kwok.x-k8s.io/stage":null}}}`)
	_, err := kube.CoreV1().Nodes().Patch(ctx, m.name, types.MergePatchType, well, metav1.PatchOptions{})
	return err
}

// node is what the machine's kubelet joins with. Its provider ID is left to the controller.
func (m machine) node() *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.name,
			Labels: map[string]string{
				corev1.LabelHostname: m.name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
				localplane.NodeLabel: localplane.NodeLabelValue,
			},
		},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}
