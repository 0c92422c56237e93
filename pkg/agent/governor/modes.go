package governor

// switched is the most critical raised server where the plan has two modes; nil when no server is raised, or the plan
// has not.
func (c *Core) switched() *server {
	if !c.modeSwitch {
		return nil
	}
	for i := range c.servers {
		if s := &c.servers[i]; s.raised > 0 {
			return s
		}
	}
	return nil
}

// squeezeAll squeezes all victims that are less critical than a server as far as they may be. It says whether the Setter agreed.
func (c *Core) squeezeAll(raised *server, set Setter) bool {
	agreed := true
	for _, i := range c.victims {
		if v := &c.servers[i]; v.givesWayTo(raised) {
			agreed = c.keepAtFloor(v, set) && agreed
		}
	}
	return agreed
}

// keepAtFloor squeezes a victim to its floor. One that has no more than that, or nothing yet, gets no more than that.
func (c *Core) keepAtFloor(v *server, set Setter) bool {
	if v.budget > v.floor {
		return c.squeeze(v, 0, set)
	}
	if v.raised == 0 && v.squeezed != v.floor {
		c.cut(v, v.floor)
	}
	return true
}

// keepDown squeezes the victims that came, or became victims, while a server is raised where the plan has two modes, and
// those whose cut the kernel refused.
func (c *Core) keepDown(set Setter) {
	raised := c.switched()
	if raised == nil {
		return
	}
	for _, i := range c.victims {
		if v := &c.servers[i]; v.givesWayTo(raised) && v.retryAt <= c.bandwidth.now {
			c.keepAtFloor(v, set)
		}
	}
}
