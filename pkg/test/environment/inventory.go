package environment

import (
	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/test"
)

// StartInventory is Start for scenarios about real machines: the controller switches those of InventoryMachines, by
// the programs in directory, and knows the labels by which pods may select them.
func StartInventory(data []byte, directory, labels string) *Environment {
	GinkgoHelper()
	env := Start(data)
	env.standing = []client.Object{test.InventoryNodeClass()}
	env.defaults = merge(without(env.defaults, "--simulated-repair-toleration"),
		"--cloud-provider=inventory", "--inventory-exec-directory="+directory, "--inventory-labels="+labels,
		"--inventory-power-timeout=5s", "--inventory-quarantine=2s",
		"--feature-gates=NodeRepair=true,StaticCapacity=true,ReservedCapacity=true,TerminateFirstDrift=true,TerminateFirstRepair=true")
	return env
}
