package power

import (
	"fmt"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// What programs and web services are asked to do.
const (
	actionOn      = "on"
	actionOff     = "off"
	actionRestart = "restart"
	actionStatus  = "status"
)

// parseState reads what a program or web service says of a machine.
func parseState(text, from string) (State, error) {
	switch strings.ToLower(text) {
	case "on":
		return v1alpha1.PowerOn, nil
	case "off":
		return v1alpha1.PowerOff, nil
	}
	return v1alpha1.PowerUnknown, fmt.Errorf("%w: %s answered status with %.40q; it must be on or off", ErrConfig, from, text)
}
