package frontdoor

import (
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// maxClients bounds how many addresses are remembered; the ones longest not seen are forgotten, and begin with
// a full burst again.
const maxClients = 1024

// clients are the limits on requests by address.
type clients struct {
	limits Limits
	clock  clock.PassiveClock
	mu     sync.Mutex
	known  *lru.Cache
}

func newClients(limits Limits, clk clock.PassiveClock) *clients {
	return &clients{limits: limits, clock: clk, known: lru.New(maxClients)}
}

func (c *clients) allow(client string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limiter, ok := c.known.Get(client)
	if !ok {
		limiter = rate.NewLimiter(rate.Limit(c.limits.PerSecond), c.limits.Burst)
		c.known.Add(client, limiter)
	}
	return limiter.(*rate.Limiter).AllowN(c.clock.Now(), 1)
}
