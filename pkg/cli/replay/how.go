package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// how says how each group of figures is computed at a speed.
func how(speed float64) map[string]string {
	return map[string]string{
		"wait.untilBound": "real seconds of the run, from the request that creates the Pod to the watch event in which it has a node; " +
			"pods that never got a node have no wait, are in no percentile, and are counted beside them; percentiles by nearest rank",
		"wait.untilRunning": "as untilBound, to the watch event in which the Pod's phase is Running",
		"wait.recordedInTrace": "trace seconds, scheduled_time less creation_time of the same pods; the recorded cluster had its machines " +
			"running, the replay opens each machine when it is needed",
		"speed": fmt.Sprintf("arrivals and run times pass %g times faster than recorded; machines start, batches are collected and "+
			"consolidation waits in real seconds, so in trace time each of those is %g times as long", speed, speed),
		"run.podsFinished": "a pod is deleted once it has run as long as it did in the trace (deletion less placement, or less creation when it was " +
			"never placed), divided by the speed",
		"run.podsMovedByConsolidation": "Pods created again because theirs was evicted; only pods recorded as latency-sensitive (LS) may be moved, all " +
			"others carry karpenter.sh/do-not-disrupt",
		"spent": fmt.Sprintf("sum over samples of the value times the time to the next sample, times the speed %g (so in trace time); price is that of "+
			"each machine's offering from order to removal; watts are modelled: requests of CPU drive the host's, requests of GPUs and NPUs the devices'", speed),
		"spent.dollarsForNodesWithoutPods": "the part of the dollars for machines that no pod was on: booting, or waiting until consolidation closes them; both " +
			"waits are real seconds, so this part grows with the speed",
		"spent.utilisation": "requested over allocatable, each integrated over the run; a pod with a fraction of a GPU counts that fraction",
		"fit": "a pod fits a machine when an empty one has the CPU, memory, GPUs and GPU model it asks for; catalogue machines less Kubernetes' own " +
			"0.1 core and 10 MiB; pods that fit no allowed machine are not created",
		"machines": "from each NodeClaim's creation to its removal or the end of the run, in trace time; dollars as hours times the offering's price",
		"gpu": "pods with a share of one GPU ask for mainspring.dev/gpu-milli, pods with whole GPUs for nvidia.com/gpu and 1000 of the shares each; shares are a " +
			"sum over a machine's GPUs, so several pods may together fit a machine though no single GPU has room for one of them",
	}
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// sentence begins with a capital letter.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
