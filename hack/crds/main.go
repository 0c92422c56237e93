// Command crds copies the CustomResourceDefinitions that Mainspring serves into the chart
// mainspring-crds: Karpenter's from the module in go.mod, and our own from pkg/apis/crds. Karpenter's are unchanged,
// but that budgets of NodePools may name the reason RTPressure. It runs from the root of the checkout.
//
// With --check it writes nothing and fails where a copy is missing, differs or is left over.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	own := flag.String("own", "pkg/apis/crds", "folder of our own definitions")
	chart := flag.String("chart", "charts/mainspring-crds/files", "folder of the chart's copies")
	check := flag.Bool("check", false, "compare instead of writing")
	flag.Parse()
	if err := run(*own, *chart, *check); err != nil {
		fmt.Fprintf(os.Stderr, "crds: %v\n", err)
		os.Exit(1)
	}
}

func run(own, chart string, check bool) error {
	wanted, err := definitions(own)
	if err != nil {
		return err
	}
	if !check {
		return write(chart, wanted)
	}
	differences, err := compare(chart, wanted)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		return fmt.Errorf("%s: %s; run `go run ./hack/crds`", chart, strings.Join(differences, ", "))
	}
	return nil
}
