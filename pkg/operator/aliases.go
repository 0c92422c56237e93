package operator

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
)

// alias is an environment variable of the KCloud Workload Optimizer for a flag of ours. The variable of the flag's own name
// comes before it, and the flag before both.
type alias struct {
	variable, flag string
	// convert returns the flag's value for the variable's. The error says what would be right.
	convert func(string) (string, error)
}

// aliases are those that have the same meaning here. LOG_LEVEL is the variable of a flag already. POD_NAME, OPERATOR_NAME
// and CORE_SCHEDULER_URL name what does not exist here, and nothing reads them.
var aliases = []alias{
	{"METRICS_BIND_ADDRESS", "metrics-port", portOfAddress},
	{"HEALTH_PROBE_BIND_ADDRESS", "health-probe-port", portOfAddress},
	{"LEADER_ELECTION", "disable-leader-election", negateBool},
	{"LEADER_ELECTION_ID", "leader-election-name", func(name string) (string, error) { return name, nil }},
}

// applyAliases sets flags from the aliases. It refuses WATCH_NAMESPACE with a value: the controller would watch more than it
// was told.
func applyAliases(fs *flag.FlagSet) error {
	var errs []error
	if value := os.Getenv("WATCH_NAMESPACE"); value != "" {
		errs = append(errs, fmt.Errorf("environment variable WATCH_NAMESPACE is %q; want it empty: the controller watches all namespaces", value))
	}
	for _, a := range aliases {
		value := os.Getenv(a.variable)
		if value == "" {
			continue
		}
		converted, err := a.convert(value)
		if err == nil {
			err = fs.Set(a.flag, converted)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s is %q: %w", a.variable, value, err))
		}
	}
	return errors.Join(errs...)
}

// portOfAddress reads an address such as ":8080". The controller listens on all addresses.
func portOfAddress(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" && host != "0.0.0.0" && host != "::" {
		return "", errors.New("want a port after a colon, such as :8080; the controller listens on all addresses")
	}
	return port, nil
}

func negateBool(value string) (string, error) {
	is, err := strconv.ParseBool(value)
	if err != nil {
		return "", errors.New("want true or false")
	}
	return strconv.FormatBool(!is), nil
}
