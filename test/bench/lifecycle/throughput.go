package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/test/bench/report"
)

// instanceTypeCount is the size of the catalogue that upstream's own scheduling benchmark uses.
const instanceTypeCount = 400

// sizes are the batches of pending pods, the largest last: its ratio is the headline.
var sizes = []int{500, 2000, 5000}

// measureThroughput plans for the same pods with upstream's scheduler and with ours, in turn, so
// that whatever else the machine does hits both alike.
func measureThroughput(ctx context.Context, rounds int) ([]report.Figure, error) {
	log.SetLogger(logr.Discard())
	var upstream, ours, ratios []report.Figure
	for _, size := range sizes {
		bare, decorated, err := measureSize(ctx, size, rounds)
		if err != nil {
			return nil, fmt.Errorf("planning for %d pods: %w", size, err)
		}
		note := fmt.Sprintf("median of %d rounds, %d instance types", rounds, instanceTypeCount)
		upstream = append(upstream, report.Figure{Key: fmt.Sprintf("upstream_pods_per_s_%d", size), Value: median(bare.wall), Note: note})
		ours = append(ours, report.Figure{Key: fmt.Sprintf("ours_pods_per_s_%d", size), Value: median(decorated.wall), Note: note + ", all decorators, DRA on"})
		ratios = append(ratios,
			report.Figure{Key: fmt.Sprintf("ratio_%d", size), Value: medianRatio(decorated.wall, bare.wall), Goal: ">= 0.95", Note: "ours / upstream, median of the rounds"},
			report.Figure{Key: fmt.Sprintf("cpu_ratio_%d", size), Value: medianRatio(decorated.cpu, bare.cpu), Note: "the same by pods per second of CPU time: what other work on the machine disturbs least"})
	}
	return slices.Concat(upstream, ours, ratios), nil
}

// rates are pods per second, a value for each round.
type rates struct{ wall, cpu []float64 }

func (r *rates) add(pods int, s sample) {
	r.wall = append(r.wall, float64(pods)/s.wall.Seconds())
	r.cpu = append(r.cpu, float64(pods)/s.cpu.Seconds())
}

func measureSize(ctx context.Context, size, rounds int) (bare, decorated rates, err error) {
	for round := range rounds {
		for name, r := range map[string]*rates{"upstream": &bare, "ours": &decorated} {
			s, err := plan(ctx, size, uint64(round), name == "ours")
			if err != nil {
				return bare, decorated, err
			}
			r.add(size, s)
			fmt.Fprintf(os.Stderr, "  %5d pods, round %d, %-8s %8.1f pods/s\n", size, round+1, name, float64(size)/s.wall.Seconds())
		}
	}
	return bare, decorated, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// medianRatio compares round by round: both sides of a round ran right after each other.
func medianRatio(ours, upstream []float64) float64 {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / upstream[i]
	}
	return median(ratios)
}

// sample is what one plan took.
type sample struct{ wall, cpu time.Duration }

// plan goes from a batch of pending pods to a complete plan: reading the instance types through the
// provider chain, building the topology, solving.
func plan(ctx context.Context, size int, seed uint64, decorated bool) (sample, error) {
	ctx = options.ToContext(injection.WithControllerName(ctx, "provisioner"), test.Options(test.OptionsFields{IgnoreDRARequests: new(!decorated)}))
	pods := diversePods(rand.New(rand.NewPCG(seed, uint64(size))), size)
	provisioner, err := newProvisioner(ctx, decorated)
	if err != nil {
		return sample{}, err
	}
	// What the round before left behind is not this round's work.
	runtime.GC()
	start, startCPU := time.Now(), cpuTime()
	scheduler, err := provisioner.NewScheduler(ctx, pods, nil, nil, scheduling.NumConcurrentReconciles(5))
	if err != nil {
		return sample{}, fmt.Errorf("building the scheduler: %w", err)
	}
	results, err := scheduler.Solve(ctx, pods)
	if err != nil {
		return sample{}, fmt.Errorf("solving: %w", err)
	}
	taken := sample{wall: time.Since(start), cpu: cpuTime() - startCPU}
	if n := len(results.PodErrors); n > 0 {
		return sample{}, fmt.Errorf("%d of %d pods were not planned for", n, size)
	}
	return taken, nil
}

// cpuTime is the time that all threads of this process have run.
func cpuTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		panic(err) // It cannot fail for a process that asks about itself.
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func newProvisioner(ctx context.Context, decorated bool) (*provisioning.Provisioner, error) {
	pool := test.NodePool(v1.NodePool{Spec: v1.NodePoolSpec{Limits: v1.Limits{
		corev1.ResourceCPU:    resource.MustParse("10000000"),
		corev1.ResourceMemory: resource.MustParse("10000000Gi"),
	}}})
	pool.StatusConditions().SetTrue(status.ConditionReady)
	kube := fakeclient.NewClientBuilder().WithObjects(pool).WithStatusSubresource(&v1.NodePool{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		Build()
	bare := fake.NewCloudProvider()
	bare.InstanceTypes = fake.InstanceTypes(instanceTypeCount)
	var provider cloudprovider.CloudProvider = bare
	if decorated {
		var err error
		if provider, err = decorate(ctx, bare, kube); err != nil {
			return nil, err
		}
	}
	clk := clock.RealClock{}
	allocations := deviceallocation.NewController(kube)
	allocations.Hydrate(ctx)
	return provisioning.NewProvisioner(kube, events.NewRecorder(&record.FakeRecorder{}), provider,
		state.NewCluster(clk, kube, provider), clk, allocations, nil), nil
}
