// Package certs keeps the certificate of the webhooks: a Secret with a certificate authority of our own
// and a server certificate that it signed, both renewed long before they end.
//
// Certificates are made and judged by github.com/open-policy-agent/cert-controller. Its controller is
// not used: it reads all Secrets of a namespace, needs the Secret mounted as files, and replaces the
// authority and the server certificate at once, so that calls fail until every API server has the new
// bundle. Here the new authority is in the bundle before anything is signed by it, the Secret alone is
// read, and servers take the certificate from it without files.
package certs
