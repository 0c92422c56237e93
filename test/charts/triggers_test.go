package charts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/test/access"
)

// triggers are all that a PodMigration may have.
var triggers = []v1alpha1.MigrationTrigger{
	v1alpha1.TriggerManual, v1alpha1.TriggerEviction, v1alpha1.TriggerDrain, v1alpha1.TriggerRTPressure, v1alpha1.TriggerResourcePressure,
	v1alpha1.TriggerConsolidation, v1alpha1.TriggerDrift, v1alpha1.TriggerExpiration, v1alpha1.TriggerInterruption, v1alpha1.TriggerRepair,
	v1alpha1.TriggerCost, v1alpha1.TriggerPower,
}

// TestWhoSaysThatAMigrationProtects: windows and limits do not bind what does.
func TestWhoSaysThatAMigrationProtects(t *testing.T) {
	p := startPlane(t, localplane.Options{})
	p.install(t, release(crdsChart, nil))
	p.expectEstablished(t)
	p.install(t, release(mainChart, nil))
	p.grant(t, userMay("mover", "create", "podmigrations", "rtactions"), "mover", "operator")
	p.grant(t, userMay("operator", "patch", "nodes"), "operator")
	controller := p.as(t, fmt.Sprintf("system:serviceaccount:%s:mainspring", namespace), "system:serviceaccounts")
	mover, operator := p.as(t, "mover"), p.as(t, "operator")
	asks := map[string]func(client.Client, v1alpha1.MigrationTrigger) error{
		"podmigrations": func(c client.Client, trigger v1alpha1.MigrationTrigger) error {
			return c.Create(t.Context(), moving(trigger), client.DryRunAll)
		},
		"rtactions": func(c client.Client, trigger v1alpha1.MigrationTrigger) error {
			return c.Create(t.Context(), acting(trigger), client.DryRunAll)
		},
	}
	for what, ask := range asks {
		refused := func(err error) error {
			switch {
			case err == nil:
				return errAllowed
			case strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'mainspring-triggers-"+what+"'") &&
				(strings.Contains(err.Error(), "is the controller's to say; by hand it is ") || strings.Contains(err.Error(), "Drain is for who may patch nodes")):
				return nil
			}
			return err
		}
		soon(t, func(g gomega.Gomega) {
			g.Expect(refused(ask(mover, v1alpha1.TriggerRepair))).To(gomega.Succeed(), what)
		})
		for _, trigger := range triggers {
			drains := trigger == v1alpha1.TriggerDrain
			for _, tc := range []struct {
				who string
				as  client.Client
				may bool
			}{
				{"the controller", controller, true}, {"who may make them", mover, !trigger.Protective()},
				{"who may cordon, too", operator, !trigger.Protective() || drains}, {"an administrator", p.client, !trigger.Protective() || drains},
			} {
				err := ask(tc.as, trigger)
				if !tc.may {
					err = refused(err)
				}
				if err != nil {
					t.Errorf("%s of %s by %s: %v", what, trigger, tc.who, err)
				}
			}
		}
	}
	if err := asks["podmigrations"](mover, ""); err != nil {
		t.Errorf("without a trigger: %v", err)
	}
	opened := acting(v1alpha1.TriggerRepair)
	opened.Spec.Kind = "Preempt"
	if err := mover.Create(t.Context(), opened, client.DryRunAll); err != nil {
		t.Errorf("an action of another kind: %v", err)
	}
}

// as is the API server for a user.
func (p plane) as(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(p.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(config, client.Options{Scheme: p.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func userMay(name, verb string, resources ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"", v1alpha1.Group}, Resources: resources, Verbs: []string{verb}}},
	}
}

// grant makes the role, binds it to the users and waits until they have what it allows.
func (p plane) grant(t *testing.T, role *rbacv1.ClusterRole, users ...string) {
	t.Helper()
	p.apply(t, role)
	for _, user := range users {
		subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
		p.apply(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name + "-" + user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{subject},
		})
		for _, rule := range role.Rules {
			if err := access.Await(t.Context(), p.RESTConfig(), "", subject, rule); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func moving(trigger v1alpha1.MigrationTrigger) *v1alpha1.PodMigration {
	return &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "move"}, Spec: v1alpha1.PodMigrationSpec{PodName: "p", Trigger: trigger},
	}
}

func acting(trigger v1alpha1.MigrationTrigger) *v1alpha1.RTAction {
	return &v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: "move"},
		Spec: v1alpha1.RTActionSpec{
			Kind: "Migrate", Reason: string(trigger), Cause: "by-hand/1", Timeout: metav1.Duration{Duration: time.Minute},
			Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Node", Name: "n"},
			Pods:        []v1alpha1.ActionPod{{Namespace: "default", Name: "p", UID: types.UID("u")}},
		},
	}
}
