package operator

import (
	"fmt"

	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
)

// mostPerMove bounds --repack-min-savings-per-move: no pod saves as much in a day.
const mostPerMove = 1e6

// RepackOptions are the settings of repacking.
type RepackOptions struct{ disruption.RepackOptions }

func (o *RepackOptions) addFlags(fs *options.FlagSet) {
	fs.BoolVar(&o.Enabled, "repack", false, "Whether N nodes are replaced by M cheaper ones where their pods may move. Karpenter's consolidation replaces nodes by none or by one")
	fs.Float64Var(&o.MinSavingsPerMove, "repack-min-savings-per-move", 0.01, "What each pod that repacking moves has to save within a day, or in the rest of its life where that is shorter, in USD")
}

func (o *RepackOptions) validate() error {
	if !(o.MinSavingsPerMove >= 0 && o.MinSavingsPerMove <= mostPerMove) {
		return fmt.Errorf("--repack-min-savings-per-move is %g; it must be from 0 to %g USD", o.MinSavingsPerMove, mostPerMove)
	}
	return nil
}
