package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/samber/lo"
	"github.com/spf13/cobra"

	"github.com/mainspring-rt/mainspring/pkg/cli/cost"
)

const outputCSV = "csv"

// costSettings are the flags of cost and power.
type costSettings struct {
	explainSettings
	by string
}

func costCommand(s Streams) *cobra.Command {
	return newCostCommand(s, "cost", "Show what pods and nodes cost now, and how CostPolicies stand", `Reads the cluster of your kubeconfig and changes nothing. Each node's price (annotation mckube.io/price-per-hour) is shared out among its pods by what they
request. IDLE is their share of what no pod requests on their nodes.`, (*cost.Report).CostText)
}

func powerCommand(s Streams) *cobra.Command {
	return newCostCommand(s, "power", "Show what pods and nodes draw now, and how PowerPolicies stand", `Reads the cluster of your kubeconfig and changes nothing. Each node's watts are modelled from its labels and what its pods request. IDLE is their share of
what is drawn for no pod on their nodes.`, (*cost.Report).PowerText)
}

func newCostCommand(s Streams, name, short, long string, table func(*cost.Report, io.Writer) error) *cobra.Command {
	settings := costSettings{}
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCost(cmd.Context(), s, settings, table) },
	}
	cmd.Flags().StringVar(&settings.kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: KUBECONFIG, or the one in your home")
	cmd.Flags().StringVar(&settings.context, "context", "", "`context` of the kubeconfig; empty: the current one")
	cmd.Flags().StringVarP(&settings.output, "output", "o", outputText, "text, json or csv")
	cmd.Flags().StringVar(&settings.by, "by", string(cost.ByNamespace), "what to add up: "+groupings())
	return cmd
}

func groupings() string {
	names := lo.Map(cost.Groupings(), func(b cost.By, _ int) string { return string(b) })
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func runCost(ctx context.Context, s Streams, settings costSettings, table func(*cost.Report, io.Writer) error) error {
	switch {
	case settings.output != outputText && settings.output != outputJSON && settings.output != outputCSV:
		return usageError{fmt.Errorf("--output is %q; want %s, %s or %s", settings.output, outputText, outputJSON, outputCSV)}
	case !slices.Contains(cost.Groupings(), cost.By(settings.by)):
		return usageError{fmt.Errorf("--by is %q; want %s", settings.by, groupings())}
	}
	reader, _, err := settings.connect()
	if err != nil {
		return err
	}
	report, err := cost.Read(ctx, reader, cost.By(settings.by))
	if err != nil {
		return err
	}
	switch settings.output {
	case outputJSON:
		return report.JSON(s.Out)
	case outputCSV:
		return report.CSV(s.Out)
	}
	return table(report, s.Out)
}
