// Package influx writes to InfluxDB in its line protocol (1.x: /write, 2.x: /api/v2/write), and asks InfluxDB 2.x in Flux.
//
// Who writes hands points to a Writer and goes on at once: the Writer keeps a bounded number of them, sends them in batches,
// tries again what did not arrive, and counts what it had to drop.
package influx
