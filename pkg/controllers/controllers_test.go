package controllers

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/awslabs/operatorpkg/controller"
)

type named struct{}

func (*named) Register(context.Context, manager.Manager) error { return nil }

type other struct{}

func (*other) Register(context.Context, manager.Manager) error { return nil }

func TestFindAndWithoutGoByType(t *testing.T) {
	a, b := &named{}, &other{}
	list := []controller.Controller{b, a, b}
	if got, ok := find[*named](list); !ok || got != a {
		t.Errorf("find returned %v, %v", got, ok)
	}
	if _, ok := find[*other](list[1:2]); ok {
		t.Error("find returned a controller of another type")
	}
	if rest := without[*other](list); len(rest) != 1 || rest[0] != a {
		t.Errorf("without left %v", rest)
	}
}
