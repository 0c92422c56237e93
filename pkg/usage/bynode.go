package usage

import (
	"net"

	corev1 "k8s.io/api/core/v1"
)

// labelled is a reading of what a source calls a node.
type labelled struct {
	node  string
	value Value
}

// byNode puts readings together by node. What is not of a node that was asked for is left out; two readings of one node are
// an error, as nobody could say which is right.
func byNode(source string, nodes []*corev1.Node, cpu, memory []labelled) (map[string]Usage, error) {
	names := namesOf(nodes)
	cpus, err := unique(source, "CPU", names, cpu)
	if err != nil {
		return nil, err
	}
	memories, err := unique(source, "memory", names, memory)
	if err != nil {
		return nil, err
	}
	out := map[string]Usage{}
	for _, n := range nodes {
		c, hasCPU := cpus[n.Name]
		m, hasMemory := memories[n.Name]
		if hasCPU || hasMemory {
			out[n.Name] = Usage{CPU: c, Memory: m}
		}
	}
	return out, nil
}

func unique(source, what string, names map[string]string, list []labelled) (map[string]Value, error) {
	out := map[string]Value{}
	for _, l := range list {
		name, ok := find(names, l.node)
		if !ok {
			continue
		}
		if _, twice := out[name]; twice {
			return nil, bad(source, "the query for %s gives more than one value for node %s; aggregate by node", what, name)
		}
		out[name] = l.value
	}
	return out, nil
}

// namesOf leads from each name and address of a node to its name. What two nodes have leads nowhere.
func namesOf(nodes []*corev1.Node) map[string]string {
	out := map[string]string{}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if other, taken := out[a.Address]; taken && other != n.Name {
				out[a.Address] = ""
			} else {
				out[a.Address] = n.Name
			}
		}
	}
	for _, n := range nodes {
		out[n.Name] = n.Name
	}
	return out
}

// find looks a node up by what a source calls it, which may have a port.
func find(names map[string]string, called string) (string, bool) {
	if name := names[called]; name != "" {
		return name, true
	}
	host, _, err := net.SplitHostPort(called)
	if err != nil {
		return "", false
	}
	name := names[host]
	return name, name != ""
}
