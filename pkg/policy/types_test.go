package policy

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"sigs.k8s.io/randfill"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// What writes its own JSON would look to expressions otherwise than users know it, were it not told how.
func TestTypesThatWriteThemselvesAreTold(t *testing.T) {
	d := declaration{known: map[reflect.Type]*apiservercel.DeclType{}}
	for _, object := range objects {
		d.of(object)
	}
	marshaler := reflect.TypeFor[json.Marshaler]()
	for seen := range d.known {
		if seen.Implements(marshaler) || reflect.PointerTo(seen).Implements(marshaler) {
			t.Errorf("%s writes its own JSON", seen)
		}
	}
	if len(d.known) < 100 {
		t.Errorf("only %d types are known", len(d.known))
	}
}

// fits tells whether a value is what its declaration says.
func fits(t *testing.T, path string, d *apiservercel.DeclType, value any) {
	t.Helper()
	ok := true
	switch v := value.(type) {
	case map[string]any:
		for key, x := range v {
			switch field, known := d.Fields[key]; {
			case known:
				fits(t, path+"."+key, field.Type, x)
			case d.IsMap():
				fits(t, path+"."+key, d.ElemType, x)
			default:
				t.Errorf("%s.%s is not declared", path, key)
			}
		}
	case []any:
		if ok = d.IsList(); ok {
			for _, x := range v {
				fits(t, path+"[]", d.ElemType, x)
			}
		}
	case bool:
		ok = d == apiservercel.BoolType
	case string:
		ok = d == apiservercel.StringType || d == apiservercel.DynType
	case int64:
		ok = d == apiservercel.IntType || d == apiservercel.DynType
	case float64:
		ok = d == apiservercel.DoubleType
	case []byte:
		ok = d == apiservercel.BytesType
	case time.Time:
		ok = d == apiservercel.TimestampType
	case time.Duration:
		ok = d == apiservercel.DurationType
	default:
		ok = false
	}
	if !ok {
		t.Errorf("%s is %T and declared %s", path, value, d)
	}
}

// Whatever an object holds, expressions see it as declared, and what they can ask for is what its JSON has.
func TestValuesAreAsDeclared(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 2)
	d := declaration{known: map[reflect.Type]*apiservercel.DeclType{}}
	for range 50 {
		for _, object := range []any{&corev1.Pod{}, &corev1.Node{}, &mcv1.McKube{}} {
			fill.Fill(object)
			v := native(reflect.ValueOf(object))
			fits(t, reflect.TypeOf(object).Elem().Name(), d.of(reflect.TypeOf(object)), v)
			raw, err := json.Marshal(object)
			if err != nil {
				continue // randfill makes quantities that cannot be
			}
			plain := map[string]any{}
			if err := json.Unmarshal(raw, &plain); err != nil {
				t.Fatal(err)
			}
			sameKeys(t, reflect.TypeOf(object).Elem().Name(), v.(map[string]any), plain)
		}
	}
}

// sameKeys compares what is there; what JSON writes as null is not.
func sameKeys(t *testing.T, path string, seen, plain map[string]any) {
	t.Helper()
	for key, value := range plain {
		v, there := seen[key]
		if inner, ok := value.(map[string]any); ok && there {
			if m, ok := v.(map[string]any); ok {
				sameKeys(t, path+"."+key, m, inner)
			}
			continue
		}
		if value != nil && !there && key != "managedFields" {
			t.Errorf("%s.%s is in its JSON and cannot be seen", path, key)
		}
	}
	for key := range seen {
		if _, there := plain[key]; !there {
			t.Errorf("%s.%s can be seen and is not in its JSON", path, key)
		}
	}
}

func TestTimesAreTimes(t *testing.T) {
	at := metav1.Time{Time: time.Unix(5, 0)}
	if got := native(reflect.ValueOf(at)); got != at.Time {
		t.Errorf("%v", got)
	}
}
