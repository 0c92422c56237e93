package history

// Size is how many versions have been recorded so far. It does not ask the API server, so it can be
// polled often.
func (r *Recorder) Size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.versions)
}
