// Package driver is the DRA kubelet plugin of cpu.mckube.io (KEP-4381, shared devices with consumable
// capacity KEP-5075): it publishes the cores of its node as devices, and prepares the claims of the pods
// that were given a share of one.
//
// What is decided is decided by pure functions (Devices, Check, stale); Driver is the glue around them: the
// kubelet's gRPC calls, the API server and the disk. A claim is prepared when its record and its CDI
// specification are on disk; records outlive this process, the kubelet and a reboot, CDI specifications are
// made again from them.
package driver
