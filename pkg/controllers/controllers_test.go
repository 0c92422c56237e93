package controllers

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/awslabs/operatorpkg/controller"
)

type named struct{}

func (*named) Register(context.Context, manager.Manager) error { return nil }

type other struct{}

func (*other) Register(context.Context, manager.Manager) error { return nil }

func TestFindGoesByType(t *testing.T) {
	a, b := &named{}, &other{}
	if got, ok := find[*named]([]controller.Controller{b, a, b}); !ok || got != a {
		t.Errorf("find returned %v, %v", got, ok)
	}
	if _, ok := find[*other]([]controller.Controller{a}); ok {
		t.Error("find returned a controller of another type")
	}
}

func TestDropWantsExactlyOne(t *testing.T) {
	a, b := &named{}, &other{}
	kept, err := drop[*named]([]controller.Controller{b, a})
	if err != nil || len(kept) != 1 || kept[0] != b {
		t.Errorf("got %v, %v", kept, err)
	}
	for _, list := range [][]controller.Controller{{b}, {a, b, a}} {
		if _, err := drop[*named](list); err == nil || !strings.Contains(err.Error(), "*controllers.named, want 1") {
			t.Errorf("of %d controllers: %v", len(list), err)
		}
	}
}
