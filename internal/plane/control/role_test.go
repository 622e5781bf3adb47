package control_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/plane/control"
)

func TestRights(t *testing.T) {
	s := start(t)
	app, other := s.instance(t, "app"), s.instance(t, "other")
	all := []control.Right{
		control.RightView, control.RightRead, control.RightInspect, control.RightOperate, control.RightDeploy,
		control.RightAudit, control.RightErase, control.RightManage,
	}
	for role, inGranted := range map[control.Role][]control.Right{
		control.RoleInstanceAdmin:  all,
		control.RoleAuditor:        {control.RightView, control.RightRead, control.RightAudit},
		control.RolePrivacyOfficer: {control.RightView, control.RightErase},
	} {
		op, err := s.Operators.Create(t.Context(), control.NewOperator{
			Email: string(role) + "@example.com", Password: password, Role: role, Instances: []string{app.ID, app.ID},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, right := range all {
				if got, want := s.Operators.May(op.ID, app.ID, right), slices.Contains(inGranted, right); got != want {
					t.Errorf("%s, %s: %v", role, right, got)
				}
				for _, elsewhere := range []string{other.ID, "", "app", "ins_111111111111111"} {
					if s.Operators.May(op.ID, elsewhere, right) {
						t.Errorf("%s has %s in %q", role, right, elsewhere)
					}
				}
			}
			s.restart(t)
		}
	}
	admin := operator(t, s, "a@example.com")
	for _, right := range all {
		for _, instance := range []string{app.ID, other.ID, ""} {
			if !s.Operators.May(admin.ID, instance, right) {
				t.Errorf("a platform admin has no %s in %q", right, instance)
			}
		}
		if s.Operators.May("opr_111111111111111", app.ID, right) || s.Operators.May("", "", right) {
			t.Error("nobody has rights")
		}
	}
}

func TestGrants(t *testing.T) {
	s := start(t)
	app, other := s.instance(t, "app"), s.instance(t, "other")
	op, err := s.Operators.Create(t.Context(), control.NewOperator{
		Email: "a@example.com", Password: password, Role: control.RoleInstanceAdmin,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // The second time changes nothing.
		for _, id := range []string{app.ID, other.ID} {
			if op, err = s.Operators.Grant(t.Context(), op.ID, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{app.ID, other.ID}, op.Instances); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 2 {
		if op, err = s.Operators.Withdraw(t.Context(), op.ID, app.ID); err != nil ||
			s.Operators.May(op.ID, app.ID, control.RightView) || !s.Operators.May(op.ID, other.ID, control.RightView) {
			t.Fatal(op, err)
		}
	}
	_, err = s.Operators.Grant(t.Context(), op.ID, "ins_111111111111111")
	want(t, "no instance", err, j17.CodeNotFound, "")
	_, err = s.Operators.Grant(t.Context(), "opr_111111111111111", app.ID)
	want(t, "no operator", err, j17.CodeNotFound, "")
	admin := operator(t, s, "b@example.com")
	_, err = s.Operators.Grant(t.Context(), admin.ID, app.ID)
	want(t, "a platform admin", err, j17.CodeConflict, "")
	for what, n := range map[string]control.NewOperator{
		"no instance": {
			Email: "c@example.com", Password: password, Role: control.RoleAuditor, Instances: []string{"nope"},
		},
		"a platform admin": {
			Email: "c@example.com", Password: password, Role: control.RolePlatformAdmin, Instances: []string{app.ID},
		},
	} {
		_, err = s.Operators.Create(t.Context(), n)
		want(t, what, err, j17.CodeInvalidField, "instances")
	}
}

func TestTheLastPlatformAdminStays(t *testing.T) {
	s := start(t)
	a := operator(t, s, "a@example.com")
	_, err := s.Operators.SetRole(t.Context(), a.ID, control.RoleAuditor)
	want(t, "SetRole", err, j17.CodeConflict, "")
	want(t, "DeleteOperator", s.Operators.Delete(t.Context(), a.ID), j17.CodeConflict, "")
	ops := []string{a.ID}
	for i := range 7 {
		ops = append(ops, operator(t, s, fmt.Sprintf("b%d@example.com", i)).ID)
	}
	race(len(ops), func(i int) error { return s.Operators.Delete(t.Context(), ops[i]) })
	if left := s.Operators.All(); len(left) != 1 || left[0].Role != control.RolePlatformAdmin {
		t.Errorf("left are %v", left)
	}
	left := s.Operators.All()[0]
	b := operator(t, s, "c@example.com")
	if op, err := s.Operators.SetRole(t.Context(), left.ID, control.RolePrivacyOfficer); err != nil ||
		op.Role != control.RolePrivacyOfficer {
		t.Error(op, err)
	}
	if err := s.Operators.Delete(t.Context(), left.ID); err != nil {
		t.Error(err)
	}
	_, err = s.Operators.SetRole(t.Context(), b.ID, "root")
	want(t, "SetRole", err, j17.CodeInvalidField, "role")
	operator(t, s, left.Email) // The address is free again.
	s.restart(t)
	if n := len(s.Operators.All()); n != 2 {
		t.Errorf("%d operators after a restart", n)
	}
}
