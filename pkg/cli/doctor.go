package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainspring-rt/mainspring/pkg/agent/doctor"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// doctorSettings are the flags of doctor.
type doctorSettings struct {
	root, cores, reserved, output string
	programs                      bool
	granularity                   time.Duration
}

// errProblems is why doctor fails; the report has said which.
var errProblems = errors.New("the node has problems")

func doctorCommand(s Streams) *cobra.Command {
	settings := doctorSettings{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine whether this node can take real-time work",
		Long: `Examines the machine: kernel, control groups, the limits and servers of the scheduler, isolation, interrupts, frequency and
sleep of the cores, what eBPF can do, rights, container runtime and kubelet. Each finding says what was read where, what it
means, and how to mend it. Nothing is changed; the agent's programs are loaded and attached for a moment, unless --programs=false.
Run it with the rights that the agent has. The exit code is 1 when a problem was found, 2 when it was called wrongly.`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error { return runDoctor(s, settings) },
	}
	cmd.Flags().StringVar(&settings.root, "root", "/", "`directory` below which the machine's file systems are mounted")
	cmd.Flags().StringVar(&settings.cores, "cores", "", "the agent's flag of that name: a `list` of cores for real-time work, such as 2-5,7")
	cmd.Flags().StringVar(&settings.reserved, "reserved-cores", "", "the agent's flag of that name: a `list` of cores that are left to the system")
	cmd.Flags().DurationVar(&settings.granularity, "rt-budget-granularity", 0, "the controller's flag of that name (chart: settings.realtime.budgetGranularity), which must not be finer than this node; 0: not known")
	cmd.Flags().StringVarP(&settings.output, "output", "o", outputText, "text or json")
	cmd.Flags().BoolVar(&settings.programs, "programs", true, "load and attach the agent's programs for a moment")
	return cmd
}

func runDoctor(s Streams, settings doctorSettings) error {
	if settings.output != outputText && settings.output != outputJSON {
		return usageError{fmt.Errorf("--output is %q; want %s or %s", settings.output, outputText, outputJSON)}
	}
	if settings.granularity < 0 {
		return usageError{fmt.Errorf("--rt-budget-granularity is %s; it must be at least 0", settings.granularity)}
	}
	options := doctor.Options{Host: host.New(settings.root), Cores: settings.cores, Reserved: settings.reserved, Granularity: settings.granularity}
	if settings.programs {
		options.Programs, options.Denied = tryPrograms, denied
	}
	report, err := doctor.Examine(options)
	if errors.Is(err, doctor.ErrOptions) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	write := report.Text
	if settings.output == outputJSON {
		write = report.JSON
	}
	if err := write(s.Out); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	if report.Problems() {
		return silentError{errProblems}
	}
	return nil
}

// tryPrograms opens what the agent opens at its start, and closes it.
func tryPrograms(cores []int) (doctor.Programs, error) {
	monitor, err := ebpf.Open(ebpf.Options{Cores: cores, Jobs: true})
	if err != nil {
		return doctor.Programs{}, err
	}
	found := doctor.Programs{Hook: monitor.Hook(), Notes: monitor.Notes(), Fentry: ebpf.Fentry()}
	return found, monitor.Close()
}

func denied(err error) bool { return errors.Is(err, ebpf.ErrPermission) }
