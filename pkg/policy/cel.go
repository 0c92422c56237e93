package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// costLimit bounds the evaluation of one expression: a tenth of what the API server allows one of its own, about 10 ms.
const costLimit = celconfig.PerCallLimit / 10

// vocabulary is what expressions are made of: Kubernetes' own functions, and our variables.
type vocabulary struct {
	env *cel.Env
	// fields of all types, for advice.
	fields []string
}

// words is made once: it costs tens of milliseconds.
var words = sync.OnceValues(func() (vocabulary, error) {
	d := declaration{known: map[reflect.Type]*apiservercel.DeclType{}}
	variables := []cel.EnvOption{cel.Variable(variableTrigger, cel.StringType), cel.Variable(variableNow, cel.TimestampType)}
	var declared []*apiservercel.DeclType
	for name, t := range objects {
		object := d.of(t)
		if !slices.Contains(declared, object) {
			declared = append(declared, object)
		}
		variables = append(variables, cel.Variable(name, object.CelType()))
	}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: variables, DeclTypes: declared,
	})
	if err != nil {
		return vocabulary{}, fmt.Errorf("making the environment of expressions: %w", err)
	}
	v := vocabulary{env: set.StoredExpressionsEnv()}
	for t := range d.known {
		for _, a := range attributes(t) {
			v.fields = append(v.fields, a.name)
		}
	}
	slices.Sort(v.fields)
	v.fields = slices.Compact(v.fields)
	return v, nil
})

// expression is a compiled one.
type expression struct{ program cel.Program }

// compile reads an expression that yields a bool. The error says where in it what is wrong and, where that can be guessed,
// what would be right.
func compile(text string) (expression, error) {
	v, err := words()
	if err != nil {
		return expression{}, err
	}
	checked, issues := v.env.Compile(text)
	if issues.Err() != nil {
		return expression{}, v.explain(issues.Errors())
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) {
		return expression{}, fmt.Errorf("it yields a value of type %s; it must yield a bool", t)
	}
	if err := triggersKnown(checked); err != nil {
		return expression{}, err
	}
	program, err := v.env.Program(checked, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return expression{}, fmt.Errorf("preparing it: %w", err)
	}
	return expression{program}, nil
}

// holds evaluates it.
func (e expression) holds(ctx context.Context, variables map[string]any) (bool, error) {
	value, _, err := e.program.ContextEval(ctx, variables)
	cancelled := interpreter.EvalCancelledError{}
	switch {
	case errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded:
		return false, fmt.Errorf("it costs more than the limit of %d; it must look at fewer elements", costLimit)
	case err != nil:
		return false, err
	}
	yes, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it yields a value of type %s, not a bool", value.Type().TypeName())
	}
	return bool(yes), nil
}

// explain says what the compiler found, each with its place.
func (v vocabulary) explain(found []*common.Error) error {
	var all []error
	for _, e := range found {
		all = append(all, fmt.Errorf("line %d, column %d: %s%s", e.Location.Line(), e.Location.Column()+1, e.Message, v.advice(e.Message)))
	}
	return errors.Join(all...)
}

// advice is what may have been meant, in the words of the compiler's message.
func (v vocabulary) advice(message string) string {
	if name, ok := quoted(message, "undeclared reference to '"); ok {
		return fmt.Sprintf("; %s is none of the variables %s%s", name, strings.Join(variableNames(), ", "), meant(name, variableNames()))
	}
	if name, ok := quoted(message, "undefined field '"); ok {
		return meant(name, v.fields)
	}
	return ""
}

func quoted(message, after string) (string, bool) {
	_, rest, found := strings.Cut(message, after)
	name, _, closed := strings.Cut(rest, "'")
	return name, found && closed
}

// meant asks whether one of the names was.
func meant(name string, names []string) string {
	best, at := "", 3
	for _, other := range names {
		if d := distance(name, other, at); d < at {
			best, at = other, d
		}
	}
	if best == "" || at >= len(name) {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is how many letters must be put in, left out or changed to make one of the other (Levenshtein); most at most.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return min(row[len(b)], most)
}

func variableNames() []string {
	return []string{variableBudget, variableMale, variableMcKube, variableNow, variablePod, variableSource, variableTarget, variableTrigger}
}

// triggers are all that there are.
var triggers = []v1alpha1.MigrationTrigger{
	v1alpha1.TriggerManual, v1alpha1.TriggerEviction, v1alpha1.TriggerDrain, v1alpha1.TriggerRTPressure, v1alpha1.TriggerResourcePressure,
	v1alpha1.TriggerConsolidation, v1alpha1.TriggerDrift, v1alpha1.TriggerExpiration, v1alpha1.TriggerInterruption, v1alpha1.TriggerRepair,
	v1alpha1.TriggerCost, v1alpha1.TriggerPower,
}

// triggersKnown refuses to compare the trigger with a word that it never is: such a rule would never hold, and nobody
// would notice.
func triggersKnown(checked *cel.Ast) error {
	var found []error
	root := ast.NavigateAST(checked.NativeRep())
	for _, call := range ast.MatchDescendants(root, comparesTrigger) {
		for _, literal := range ast.MatchDescendants(call, ast.KindMatcher(ast.LiteralKind)) {
			word, ok := literal.AsLiteral().Value().(string)
			if !ok || slices.Contains(triggers, v1alpha1.MigrationTrigger(word)) {
				continue
			}
			place := checked.NativeRep().SourceInfo().GetStartLocation(literal.ID())
			found = append(found, fmt.Errorf("line %d, column %d: trigger is never %q; it is one of %s", place.Line(), place.Column()+1, word, triggerNames()))
		}
	}
	return errors.Join(found...)
}

// comparesTrigger is true of trigger == x, trigger != x and trigger in [x, ...].
func comparesTrigger(e ast.NavigableExpr) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	call := e.AsCall()
	if !slices.Contains([]string{operators.Equals, operators.NotEquals, operators.In}, call.FunctionName()) {
		return false
	}
	var isTrigger, isPlain bool
	for _, a := range call.Args() {
		switch {
		case a.Kind() == ast.IdentKind && a.AsIdent() == variableTrigger:
			isTrigger = true
		case a.Kind() == ast.LiteralKind || a.Kind() == ast.ListKind:
			isPlain = true
		}
	}
	return isTrigger && isPlain
}

func triggerNames() string {
	names := make([]string, len(triggers))
	for i, t := range triggers {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
