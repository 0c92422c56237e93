package power

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	broadcast = "255.255.255.255"
	// discardPort is the customary port of magic packets.
	discardPort = 9
	// magicRepeats is how often the address stands in a magic packet, after six bytes of ones: 102 bytes.
	magicRepeats = 16
	// wakePackets are sent for one call: nothing acknowledges a datagram.
	wakePackets = 3
)

// wake sends magic packets.
type wake struct {
	packet  []byte
	address string
}

func newWake(spec v1alpha1.WakeOnLANPower) (*wake, error) {
	mac, err := net.ParseMAC(spec.MAC)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("%w: wakeOnLAN.mac is %q; it must be six bytes such as 02:00:5e:10:00:07", ErrConfig, spec.MAC)
	}
	port := cmp.Or(int(spec.Port), discardPort)
	return &wake{
		packet:  magicPacket(mac),
		address: net.JoinHostPort(cmp.Or(spec.Address, broadcast), strconv.Itoa(port)),
	}, nil
}

func magicPacket(mac net.HardwareAddr) []byte {
	packet := bytes.Repeat([]byte{0xff}, 6)
	return append(packet, bytes.Repeat(mac, magicRepeats)...)
}

// send sends the packet. Go's sockets may send to broadcast addresses without being asked to.
func (w *wake) send(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", w.address)
	if err != nil {
		return fmt.Errorf("waking by %s: %w", w.address, err)
	}
	defer conn.Close()
	for range wakePackets {
		if _, err := conn.Write(w.packet); err != nil {
			return fmt.Errorf("waking by %s: %w", w.address, err)
		}
	}
	return nil
}
