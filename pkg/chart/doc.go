// Package chart renders and installs the project's Helm charts with the helm program, and reads from
// what they render how the controller is to be run.
package chart
