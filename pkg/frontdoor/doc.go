// Package frontdoor serves the HTTP endpoints that MC-Kube's programs call: POST /set-rt of a node's agent and
// POST /overrun of the controller, with the same JSON, but not the same trust. Everything is over TLS;
// callers are authenticated by TokenReview and authorised by SubjectAccessReview on the path as a
// non-resource URL (verb post); connections, requests of one client, headers, bodies and times are bounded.
//
// Bodies are read strictly: names of fields count with their letter case, a field that is there twice, of the
// wrong type or of no meaning in its value is refused, and so is anything behind the object. Fields
// that are not known are ignored: the seeds' clients send some, and every field that changes anything must be
// there, so a misspelt one is missed.
package frontdoor
