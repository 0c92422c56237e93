package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// The controller publishes each answer once. It forgets the answers that the queue has forgotten, however long the pressure
// lasts. It publishes a new answer that has the name of a forgotten one.
func TestOnlyAnswersThatAreKnownAreRemembered(t *testing.T) {
	looks := [][]*v1alpha1.RTAction{{}}
	for i := range 100 {
		var known []*v1alpha1.RTAction
		for n := max(0, i-7); n <= i; n++ {
			o := &v1alpha1.RTAction{Spec: v1alpha1.RTActionSpec{Kind: "Migrate"}}
			o.Name = fmt.Sprint("migrate-", n%50)
			known = append(known, o)
		}
		looks = append(looks, known, known)
	}
	heard := &told{}
	got := ladder.Told(heard, looks...)
	said := 0
	for _, e := range heard.list {
		if strings.Contains(e.Message, "migrate-") {
			said++
		}
	}
	if slices.Max(got) != 8 || said != 100 {
		t.Errorf("%d are remembered at most, want 8; told of %d, want 100; %v", slices.Max(got), said, heard.list[:2])
	}
}
