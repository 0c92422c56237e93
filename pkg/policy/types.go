package policy

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiservercel "k8s.io/apiserver/pkg/cel"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// unbounded is the size of lists and maps that nothing bounds.
const unbounded = math.MaxInt64

// leaf is a Go type that expressions see as one value.
type leaf struct {
	declared *apiservercel.DeclType
	value    func(any) any
}

// leaves are the types that are not what Go makes of them. They look to expressions as they do in a
// ValidatingAdmissionPolicy, but that durations and times are what they are, and a criticality is spelt as usual.
var leaves = map[reflect.Type]leaf{
	reflect.TypeFor[metav1.Time]():        {apiservercel.TimestampType, func(x any) any { return x.(metav1.Time).Time }},
	reflect.TypeFor[metav1.MicroTime]():   {apiservercel.TimestampType, func(x any) any { return x.(metav1.MicroTime).Time }},
	reflect.TypeFor[metav1.Duration]():    {apiservercel.DurationType, func(x any) any { return x.(metav1.Duration).Duration }},
	reflect.TypeFor[resource.Quantity]():  {apiservercel.StringType, func(x any) any { q := x.(resource.Quantity); return q.String() }},
	reflect.TypeFor[intstr.IntOrString](): {apiservercel.DynType, intOrString},
	reflect.TypeFor[mcv1.Criticality]():   {apiservercel.StringType, criticality},
}

func criticality(x any) any {
	c, err := rt.ParseCriticality(cmp.Or(string(x.(mcv1.Criticality)), rt.Low.String()))
	if err != nil {
		return string(x.(mcv1.Criticality))
	}
	return c.String()
}

func intOrString(x any) any {
	if v := x.(intstr.IntOrString); v.Type == intstr.String {
		return v.StrVal
	}
	return int64(x.(intstr.IntOrString).IntVal)
}

// hidden fields are nobody's business.
var hidden = map[reflect.Type][]string{reflect.TypeFor[metav1.ObjectMeta](): {"managedFields"}}

// attribute is a field of a struct by the name that users know.
type attribute struct {
	name  string
	index []int
	// omit: it is not there when it has its zero value.
	omit bool
}

// attributes lists the fields of a struct as JSON names them, those of embedded structs among them.
func attributes(t reflect.Type) []attribute {
	if known, ok := looked.Load(t); ok {
		return known.([]attribute)
	}
	out := look(t)
	looked.Store(t, out)
	return out
}

var looked sync.Map

func look(t reflect.Type) (out []attribute) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" {
			continue
		}
		if f.Anonymous && tag == "" {
			for _, inner := range attributes(f.Type) {
				out = append(out, attribute{inner.name, append([]int{i}, inner.index...), inner.omit})
			}
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		omit := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		out = append(out, attribute{tag, []int{i}, omit})
	}
	return slices.DeleteFunc(out, func(a attribute) bool { return slices.Contains(hidden[t], a.name) })
}

// declaration makes the types that expressions are checked against of Go's.
type declaration struct {
	known map[reflect.Type]*apiservercel.DeclType
}

func (d declaration) of(t reflect.Type) *apiservercel.DeclType {
	if l, ok := leaves[t]; ok {
		return l.declared
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.of(t.Elem())
	case reflect.Bool:
		return apiservercel.BoolType
	case reflect.String:
		return apiservercel.StringType
	case reflect.Float32, reflect.Float64:
		return apiservercel.DoubleType
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return apiservercel.BytesType
		}
		return apiservercel.NewListType(d.of(t.Elem()), unbounded)
	case reflect.Map:
		return apiservercel.NewMapType(apiservercel.StringType, d.of(t.Elem()), unbounded)
	case reflect.Struct:
		return d.object(t)
	}
	return apiservercel.IntType // the API has numbers of no other kind
}

func (d declaration) object(t reflect.Type) *apiservercel.DeclType {
	if known, ok := d.known[t]; ok {
		return known
	}
	fields := map[string]*apiservercel.DeclField{}
	object := apiservercel.NewObjectType(typeName(t), fields)
	d.known[t] = object
	for _, a := range attributes(t) {
		fields[a.name] = apiservercel.NewDeclField(a.name, d.of(t.FieldByIndex(a.index).Type), !a.omit, nil, nil)
	}
	return object
}

// typeName is what messages call a type: its package and name, for example core.v1.Pod.
func typeName(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(append(parts[max(0, len(parts)-2):], t.Name()), ".")
}

// native is what expressions see of a Go value; nil of a nil pointer.
func native(v reflect.Value) any {
	if l, ok := leaves[v.Type()]; ok {
		return l.value(v.Interface())
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return native(v.Elem())
	case reflect.Bool:
		return v.Bool()
	case reflect.String:
		return v.String()
	case reflect.Float32, reflect.Float64:
		return v.Float()
	case reflect.Slice:
		return list(v)
	case reflect.Map:
		out := make(map[string]any, v.Len())
		for entries := v.MapRange(); entries.Next(); {
			out[entries.Key().String()] = native(entries.Value())
		}
		return out
	case reflect.Struct:
		return fields(v)
	}
	if v.CanUint() {
		return int64(v.Uint()) //nolint:gosec // bounded by the API's own int64
	}
	return v.Int()
}

func list(v reflect.Value) any {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return v.Bytes()
	}
	out := make([]any, v.Len())
	for i := range out {
		out[i] = native(v.Index(i))
	}
	return out
}

// fields leaves out what the object's JSON would: expressions ask has().
func fields(v reflect.Value) map[string]any {
	out := map[string]any{}
	for _, a := range attributes(v.Type()) {
		f := v.FieldByIndex(a.index)
		nothing := f.IsZero() || a.omit && (f.Kind() == reflect.Slice || f.Kind() == reflect.Map) && f.Len() == 0
		if nothing && (a.omit || f.Kind() == reflect.Pointer || f.Kind() == reflect.Slice || f.Kind() == reflect.Map) {
			continue
		}
		out[a.name] = native(f)
	}
	return out
}
