package main

import "github.com/mainspring-rt/mainspring/pkg/agent/table"

// deeds are what an agent did in a run, over all servers.
type deeds struct {
	Overruns   uint64 `json:"overruns"`
	Throttles  uint64 `json:"throttles"`
	Raises     uint64 `json:"raises"`
	Partial    uint64 `json:"partial"`
	Denied     uint64 `json:"denied"`
	Refused    uint64 `json:"refused"`
	Squeezes   uint64 `json:"squeezes"`
	Recoveries uint64 `json:"recoveries"`
}

func deedsOf(r table.Report) deeds {
	var d deeds
	for _, s := range r.Servers {
		d.Overruns += s.Overruns
		d.Throttles += s.Throttles
		d.Raises += s.Raises
		d.Partial += s.Partial
		d.Denied += s.Denied
		d.Refused += s.Refused
		d.Squeezes += s.Squeezes
		d.Recoveries += s.Recoveries
	}
	return d
}

// since an earlier report.
func (d deeds) since(before deeds) deeds {
	return deeds{
		Overruns: d.Overruns - before.Overruns, Throttles: d.Throttles - before.Throttles, Raises: d.Raises - before.Raises, Partial: d.Partial - before.Partial,
		Denied: d.Denied - before.Denied, Refused: d.Refused - before.Refused, Squeezes: d.Squeezes - before.Squeezes, Recoveries: d.Recoveries - before.Recoveries,
	}
}
