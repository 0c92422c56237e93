package localplane_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func TestStartReturnsAReadyPlane(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	client := adminOf(t, plane)
	if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil {
		t.Errorf("the API server is not ready: %v", err)
	}
	if _, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the default ServiceAccount is missing: %v", err)
	}
	for _, tool := range []toolchain.Tool{toolchain.Etcd, toolchain.KubeAPIServer, toolchain.KubeControllerManager, toolchain.KubeScheduler, toolchain.Kwok} {
		if pid := plane.PIDs()[tool]; pid == 0 || !alive(pid) {
			t.Errorf("%s does not run", tool)
		}
	}
}

func TestVersionIsThePinnedOne(t *testing.T) {
	t.Parallel()
	version, err := adminOf(t, sharedPlane(t)).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version.GitVersion, "v1.36.") {
		t.Errorf("the server calls itself %s, want v1.36.x", version.GitVersion)
	}
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	err := filepath.WalkDir(plane.Dir(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == filepath.Join(plane.Dir(), "etcd") { // its files change while they are listed
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s: others can read it", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPlanesAtOnce(t *testing.T) {
	t.Parallel()
	var planes [2]*localplane.Plane
	var errs [2]error
	var starts sync.WaitGroup
	for i := range planes {
		starts.Go(func() { planes[i], errs[i] = localplane.Start(t.Context(), localplane.Options{Bin: bin}) })
	}
	starts.Wait()
	for i, plane := range planes {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		t.Cleanup(func() { _ = plane.Stop() }) // cancelled with the test already
	}
	addConfigMap(t, planes[0], "only-here")
	_, err := adminOf(t, planes[1]).CoreV1().ConfigMaps("default").Get(t.Context(), "only-here", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the second plane answers %v, want not found", err)
	}
}

func addConfigMap(t *testing.T, plane *localplane.Plane, name string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := adminOf(t, plane).CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func expectConfigMap(t *testing.T, plane *localplane.Plane, name string) {
	t.Helper()
	if _, err := adminOf(t, plane).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("reading back ConfigMap %s: %v", name, err)
	}
}

func TestAPIServerStopsAndStartsWithItsData(t *testing.T) {
	t.Parallel()
	plane := start(t, localplane.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	addConfigMap(t, plane, "kept")
	addNode(t, plane, "before")
	addPod(t, plane, "before", nil)
	expectRunning(t, plane, "before") // every component has begun its work, and has to go on with it
	if err := plane.StartAPIServer(t.Context()); !errors.Is(err, localplane.ErrAPIServerRunning) {
		t.Errorf("starting a running API server: %v, want ErrAPIServerRunning", err)
	}
	if err := plane.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := plane.StopAPIServer(t.Context()); !errors.Is(err, localplane.ErrAPIServerStopped) {
		t.Errorf("stopping a stopped API server: %v, want ErrAPIServerStopped", err)
	}
	if _, err := adminOf(t, plane).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the API server answers after it was stopped")
	}
	if err := plane.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectConfigMap(t, plane, "kept")
	addNode(t, plane, "after")
	addPod(t, plane, "after", nil)
	expectRunning(t, plane, "after")
	if err := plane.Err(); err != nil {
		t.Errorf("a component did not survive: %v", err)
	}
}

func TestDirIsContinued(t *testing.T) {
	t.Parallel()
	options := localplane.Options{Dir: t.TempDir()}
	first := start(t, options)
	addConfigMap(t, first, "kept")
	other := localplane.Options{Dir: options.Dir, Bin: bin}
	if _, err := localplane.Start(t.Context(), other); err == nil || !strings.Contains(err.Error(), "in use by another plane") {
		t.Errorf("starting a second plane in the same Dir: %v", err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	expectConfigMap(t, start(t, options), "kept")
}

func TestTemporaryDirIsRemoved(t *testing.T) {
	t.Parallel()
	plane := start(t, localplane.Options{})
	if err := plane.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(plane.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary directory is left: %v", err)
	}
}

func TestCancelStopsEverything(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	plane, err := localplane.Start(ctx, localplane.Options{Bin: bin, ControllerManager: true, Scheduler: true, Kwok: true})
	if err != nil {
		t.Fatal(err)
	}
	pids := pidsOf(plane)
	cancel()
	<-plane.Done()
	for name, pid := range pids {
		if alive(pid) {
			t.Errorf("%s runs after Done", name)
		}
	}
	if err := plane.Err(); err != nil {
		t.Errorf("a cancelled plane reports %v", err)
	}
	if err := plane.StartAPIServer(t.Context()); !errors.Is(err, localplane.ErrStopped) {
		t.Errorf("starting the API server of a stopped plane: %v, want ErrStopped", err)
	}
}

func TestCancelWhileStarting(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := localplane.Start(ctx, localplane.Options{Bin: bin}); !errors.Is(err, context.Canceled) {
		t.Errorf("starting with a cancelled context: %v", err)
	}
}

func TestDeathOfAComponentIsTold(t *testing.T) {
	t.Parallel()
	plane, err := localplane.Start(t.Context(), localplane.Options{Bin: bin, Scheduler: true})
	if err != nil {
		t.Fatal(err)
	}
	pids := pidsOf(plane)
	if err := syscall.Kill(pids["kube-scheduler"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-plane.Done()
	err = plane.Err()
	if err == nil || !strings.Contains(err.Error(), "kube-scheduler ended by itself: signal: killed") {
		t.Errorf("the plane reports %v", err)
	}
	log, readErr := os.ReadFile(filepath.Join(plane.Dir(), "logs", "kube-scheduler.log"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	if last := lines[len(lines)-1]; last == "" || !strings.HasSuffix(strings.TrimSpace(err.Error()), last) {
		t.Errorf("the error does not end with the log's last line, %q: %v", last, err)
	}
	expectAllEnd(t, pids)
	if err := os.RemoveAll(plane.Dir()); err != nil {
		t.Error(err)
	}
}
