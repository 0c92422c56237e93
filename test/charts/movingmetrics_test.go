package charts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is what the programs' own packages say of metrics, without their tests.
type source struct {
	// variables are the names of the variables that hold a metric, by the metric's name without prefix.
	variables map[string][]string
	// changed are the variables that a call changes, or whose value a collector sends.
	changed map[string]bool
	// texts are all string literals.
	texts map[string]bool
}

// mutators are the methods that change a metric, or return the series of it that is changed.
var mutators = []string{"Add", "Inc", "Dec", "Set", "Observe", "With", "WithLabelValues", "Begin", "Reset", "Tell"}

// senders are the functions by which a collector sends a value of the description that comes first.
var senders = []string{"gauge", "total", "counter", "histogramOf", "MustNewConstMetric", "MustNewConstHistogram"}

func readSource(t *testing.T) source {
	t.Helper()
	s := source{variables: map[string][]string{}, changed: map[string]bool{}, texts: map[string]bool{}}
	err := filepath.WalkDir("../../pkg", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.addFile(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// addFile adds a file. Functions that make metrics, or have all series of one exist from the start, change none.
func (s source) addFile(file *ast.File) {
	for _, declared := range file.Decls {
		into := s
		if f, ok := declared.(*ast.FuncDecl); ok && (strings.HasPrefix(f.Name.Name, "new") || strings.HasPrefix(f.Name.Name, "zero")) {
			into.changed = map[string]bool{}
		}
		ast.Inspect(declared, into.add)
	}
}

func (s source) add(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if field, ok := n.Key.(*ast.Ident); ok {
			s.name(field.Name, n.Value)
		}
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
			s.texts[text] = true
		}
	case *ast.ValueSpec:
		for i, value := range n.Values {
			s.name(n.Names[i].Name, value)
		}
	case *ast.CallExpr:
		if slices.Contains(senders, nameOf(n.Fun)) && len(n.Args) > 0 {
			s.changed[nameOf(n.Args[0])] = true
		}
		if method, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(mutators, method.Sel.Name) {
			s.changed[nameOf(method.X)] = true
		}
	}
	return true
}

// name takes a variable, or field, for a metric of every name that its value mentions.
func (s source) name(variable string, value ast.Expr) {
	ast.Inspect(value, func(in ast.Node) bool {
		if text, ok := in.(*ast.BasicLit); ok && text.Kind == token.STRING {
			metric := strings.TrimPrefix(strings.TrimPrefix(strings.Trim(text.Value, `"`), "mainspring"), "_")
			s.variables[metric] = append(s.variables[metric], variable)
		}
		return true
	})
}

// nameOf returns the name of a variable, of this package or another; empty: it is no variable.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

var selected = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!=|=)\s*"([^"]*)"`)

// TestAlertsReadMetricsThatMove holds each of our metrics that an alert reads against the code that changes it, and each value of a label that it
// selects against the code that writes it: a series that nothing writes stays 0, and its alert silent.
func TestAlertsReadMetricsThatMove(t *testing.T) {
	code, seen := readSource(t), 0
	for _, r := range alerts(t, object{}).all() {
		for _, s := range selector.FindAllStringSubmatch(r.Expr, -1) {
			name, ours := strings.CutPrefix(s[1], "mainspring_")
			if !ours {
				continue
			}
			seen++
			if !slices.ContainsFunc(code.variables[name], func(variable string) bool { return code.changed[variable] }) {
				t.Errorf("%s reads %s, which no code changes (variables %v)", r.Alert, s[1], code.variables[name])
			}
			for _, m := range selected.FindAllStringSubmatch(s[2], -1) {
				for value := range strings.SplitSeq(m[2], "|") {
					if m[1] != "job" && !code.texts[value] {
						t.Errorf("%s selects %s by %s=%q, which no code writes", r.Alert, s[1], m[1], value)
					}
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("%d metrics of ours in all alerts", seen)
	}
}

// The check finds a metric that is only declared and registered, and a value that is nowhere.
func TestAMetricThatNothingChangesIsFound(t *testing.T) {
	s := source{variables: map[string][]string{}, changed: map[string]bool{}, texts: map[string]bool{}}
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
var (
	Still = counter("still_total", "help")
	Moves = counter("moves_total", "help")
	sent  = prometheus.NewDesc(namespace+"_sent", "help", nil, nil)
)
func newThings() things { t := things{Made: counter("made_total", "help")}; t.Made.WithLabelValues("done"); return t }
func f() { for _, c := range []prometheus.Collector{Still, Moves} { registry.MustRegister(c, Still) }; Moves.WithLabelValues("done").Inc(); to <- gauge(sent, 1) }`, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.addFile(file)
	for name, want := range map[string]bool{"still_total": false, "moves_total": true, "sent": true, "made_total": false} {
		if got := slices.ContainsFunc(s.variables[name], func(v string) bool { return s.changed[v] }); got != want {
			t.Errorf("%s changes: %t, want %t (%v)", name, got, want, s.variables[name])
		}
	}
	if !s.texts["done"] || s.texts["failed"] {
		t.Errorf("texts %v", s.texts)
	}
}
