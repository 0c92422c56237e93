// Package rtdra translates between the real-time model (package rt), McKubes and the claims and devices
// of dynamic resource allocation (DRA, KEP-4381; shared devices with consumable capacity, KEP-5075).
// Every function is pure, so that the webhook, which gives a pod the name of a claim template, and the
// controller, which creates the template, agree without talking to each other.
package rtdra
