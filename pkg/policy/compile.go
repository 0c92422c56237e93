package policy

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// rule is a compiled one.
type rule struct {
	name, message string
	allow         bool
	expression    expression
}

// Compiled is a policy that can be asked.
type Compiled struct {
	rules   []rule
	windows windows
}

// Compile reads what is written in a policy: expressions, windows, selectors, the engine's address and certificates. The errors name
// the field, what is wrong with it and what would be right; a policy with any of them is not used.
func Compile(spec *v1alpha1.MigrationPolicySpec) (*Compiled, field.ErrorList) {
	root := field.NewPath("spec")
	c := &Compiled{}
	errs := selectorErrors(root, spec)
	for i, r := range spec.Rules {
		at := root.Child("rules").Index(i)
		e, err := compile(r.Expression)
		if err != nil {
			errs = append(errs, field.Invalid(at.Child("expression"), r.Expression, err.Error()))
		}
		if r.Action != v1alpha1.RuleAllow && r.Action != v1alpha1.RuleDeny {
			errs = append(errs, field.NotSupported(at.Child("action"), r.Action, []v1alpha1.RuleAction{v1alpha1.RuleAllow, v1alpha1.RuleDeny}))
		}
		c.rules = append(c.rules, rule{name: r.Name, message: cmp.Or(r.Message, r.Name), allow: r.Action == v1alpha1.RuleAllow, expression: e})
	}
	for i, w := range spec.Windows {
		at := root.Child("windows").Index(i)
		parsed, err := parseWindow(w)
		if err != nil {
			errs = append(errs, field.Invalid(at.Child("schedule"), w.Schedule, err.Error()))
		}
		if w.Duration.Duration < shortestWindow || w.Duration.Duration > longestWindow {
			errs = append(errs, field.Invalid(at.Child("duration"), w.Duration.Duration.String(), fmt.Sprintf("must be from %s to %s", shortestWindow, longestWindow)))
		}
		c.windows = append(c.windows, parsed)
	}
	errs = append(errs, engineErrors(root.Child("policyEngine"), spec.PolicyEngine)...)
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

func selectorErrors(root *field.Path, spec *v1alpha1.MigrationPolicySpec) (errs field.ErrorList) {
	for name, s := range map[string]*metav1.LabelSelector{"selector": spec.Selector, "namespaceSelector": spec.NamespaceSelector} {
		errs = append(errs, metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, root.Child(name))...)
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
	return errs
}

// engineErrors finds what the schema cannot: credentials in the address, certificates that are none.
func engineErrors(at *field.Path, e *v1alpha1.PolicyEngine) (errs field.ErrorList) {
	if e == nil {
		return nil
	}
	address, err := url.Parse(e.URL)
	switch {
	case err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https":
		errs = append(errs, field.Invalid(at.Child("url"), field.OmitValueType{}, "must be http:// or https://, a host and perhaps a path, for example http://policy-engine.orchestration-engines.svc:8080"))
	case address.User != nil:
		errs = append(errs, field.Invalid(at.Child("url"), field.OmitValueType{}, "must not hold a user or password; a token goes into tokenSecret"))
	case address.Scheme == "http" && (e.CABundle != "" || e.TokenSecret != nil):
		errs = append(errs, field.Invalid(at.Child("url"), e.URL, "must be https where there is a caBundle or a tokenSecret"))
	}
	if e.CABundle != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(e.CABundle)) {
		errs = append(errs, field.Invalid(at.Child("caBundle"), field.OmitValueType{}, "holds no certificate that can be read; it must be PEM, beginning with -----BEGIN CERTIFICATE-----"))
	}
	if t := e.Timeout; t != nil && (t.Duration < 10*time.Millisecond || t.Duration > 30*time.Second) {
		errs = append(errs, field.Invalid(at.Child("timeout"), t.Duration.String(), "must be from 10ms to 30s"))
	}
	return errs
}

// Verdict is what a policy itself says, before any engine is asked.
type Verdict struct {
	Allowed bool
	// Rule that decided; empty when none did.
	Rule   string
	Reason string
}

// Decide looks at the windows, then at the rules in their order: the first whose expression holds decides, and when none
// does the answer is yes. One that cannot be evaluated, or not within its cost, decides too: no.
func (c *Compiled) Decide(ctx context.Context, q Question) Verdict {
	if why := c.windows.closed(q.Now); why != "" && !q.Trigger.Protective() {
		return Verdict{Reason: why}
	}
	if len(c.rules) == 0 {
		return Verdict{Allowed: true, Reason: "it has no rules"}
	}
	variables := see(q)
	for _, r := range c.rules {
		yes, err := r.expression.holds(ctx, variables)
		switch {
		case err != nil:
			return Verdict{Rule: r.name, Reason: fmt.Sprintf("rule %s cannot be evaluated: %s", r.name, err)}
		case yes:
			return Verdict{Allowed: r.allow, Rule: r.name, Reason: r.message}
		}
	}
	return Verdict{Allowed: true, Reason: "no rule holds"}
}
