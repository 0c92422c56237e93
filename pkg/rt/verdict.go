package rt

import "fmt"

// Names of the tests, as in Verdict.Test.
const (
	TestT1     = "T1"
	TestT1k    = "T1k"
	TestEDFVD  = "EDF-VD"
	TestAMC    = "AMC-rtb"
	TestKernel = "Kernel"
)

// Reasons of a Verdict: the same words in conditions, Events and metrics.
const (
	// ReasonFits means: the test passes.
	ReasonFits = "Fits"
	// ReasonInvalidServer means: a server fails Validate.
	ReasonInvalidServer = "InvalidServer"
	// ReasonCoreFull means: the bandwidths do not fit into the core's capacity.
	ReasonCoreFull = "CoreFull"
	// ReasonReserveTooSmall means: the core's escalation reserve does not pay the raise of a Limited
	// server.
	ReasonReserveTooSmall = "EscalationReserveTooSmall"
	// ReasonModeSwitch means: either mode fits, but not the change from one to the other.
	ReasonModeSwitch = "ModeSwitchTooLong"
	// ReasonResponseTime means: some server would be given its budget too late under fixed priorities.
	ReasonResponseTime = "ResponseTimeTooLong"
	// ReasonConstrainedDeadline means: the test is only for deadlines equal to periods.
	ReasonConstrainedDeadline = "ConstrainedDeadline"
	// ReasonNoCore means: no core was offered.
	ReasonNoCore = "NoCore"
)

// Verdict is the answer of an admission test, with its numbers.
type Verdict struct {
	// Test is the test that decided.
	Test string
	// Admitted: every budget that the test promises is kept under any pattern of overruns.
	Admitted bool
	// Need is the bandwidth of the server asked about (of none, when a whole set was asked about), Used
	// that of the others, Limit that of the core. Admit and Holds count charges against Core.Capacity, also
	// for T1k; only T1k itself adds raises and the escalation reserve.
	Need, Used, Limit PPM
	// Reason is one of the constants above.
	Reason string
	// Server is the ID of the server that the reason is about; empty when it is about the core.
	Server string
}

// Free is the bandwidth that Used leaves of Limit; never negative.
func (v Verdict) Free() PPM { return max(0, v.Limit-v.Used) }

// String tells the numbers in a line.
func (v Verdict) String() string {
	about := ""
	if v.Server != "" {
		about = " (" + v.Server + ")"
	}
	need := ""
	if v.Need != 0 {
		need = fmt.Sprintf("needs %d ppm, ", v.Need)
	}
	return fmt.Sprintf("%s: %s%s: %s%d of %d ppm used", v.Test, v.Reason, about, need, v.Used, v.Limit)
}

// judge decides by bandwidth alone. A core that owes bandwidth has none.
func judge(test string, used, limit PPM) Verdict {
	limit = max(0, limit)
	v := Verdict{Test: test, Used: used, Limit: limit, Admitted: used <= limit, Reason: ReasonFits}
	if !v.Admitted {
		v.Reason = ReasonCoreFull
	}
	return v
}

// refuse turns the verdict into a refusal.
func (v Verdict) refuse(reason, server string) Verdict {
	v.Admitted, v.Reason, v.Server = false, reason, server
	return v
}
