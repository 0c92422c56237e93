package governor

import "math/bits"

// periods remembers which of the last 64 periods of a server something happened in.
type periods struct {
	mask    uint64 // bit i: in the i-th last period
	last    int64  // release of the period of bit 0; 0: none yet
	counted bool   // bit 0 stands for what happened since forget
}

// count takes down the period of a release, once. It says whether that was new.
func (p *periods) count(release, period int64) bool {
	ahead := release - p.last
	switch {
	case p.last == 0:
		p.mask = 1
	case ahead > 0:
		p.mask = p.mask<<min(max(1, (ahead+period/2)/period), 64) | 1
	case ahead < 0 || p.counted:
		return false
	}
	p.mask |= 1
	p.last, p.counted = max(release, 1), true
	return true
}

// within is in how many of the last n periods it happened.
func (p *periods) within(n int) int { return bits.OnesCount64(p.mask & lastPeriods(n)) }

// forget begins anew; the period under way may count again.
func (p *periods) forget() { p.mask, p.counted = 0, false }

// lastPeriods masks the last n periods.
func lastPeriods(n int) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<max(n, 0) - 1
}
