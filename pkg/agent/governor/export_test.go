package governor

import "github.com/mainspring-rt/mainspring/pkg/rt"

// Most is the most that was promised at any instant since a release.
func (c *Core) Most(since int64) rt.PPM { return c.bandwidth.most(since) }
