package actuator

import "slices"

// spared says that a group is one of the table that is there and not open: what is in force there stays, and no other group is charged for it. The
// core that was promised to its server is charged for that already.
func (l *levels) spared(group string) bool {
	_, open := l.servers[group]
	r, expected := l.rooms[group]
	return slices.Contains(l.unopened, group) && !open && (!expected || r.void) && l.there(group)
}

// spares are the spared groups within a level, which is sized for what they have in force.
func (l *levels) spares(level string) []string {
	return slices.DeleteFunc(slices.Clone(l.unopened), func(group string) bool { return !below(group, level) || !l.spared(group) })
}

// inForce is what a spared group has on a core; nothing when it has just gone.
func (l *levels) inForce(group string, core int) (Budget, error) {
	b, err := l.budget(group, core)
	if gone(err) {
		return Budget{}, nil
	}
	return b, err
}
