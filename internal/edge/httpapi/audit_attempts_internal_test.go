package httpapi

import (
	"testing"
	"time"

	"j17"
)

func TestRefusedAttemptsAreBounded(t *testing.T) {
	var a attempts
	now := time.Unix(1_700_000_000, 0)
	one := attempt{"opr_a", "spec.deploy", j17.CodeForbidden}
	recorded := 0
	for range 2000 {
		if _, ok := a.admit(one, now); ok {
			recorded++
		}
	}
	if recorded != attemptsKept {
		t.Errorf("%d of 2000 were recorded", recorded)
	}
	other := attempt{"opr_b", "spec.deploy", j17.CodeForbidden}
	if silent, ok := a.admit(other, now); !ok || silent != 0 {
		t.Error("another operator is not recorded")
	}
	if silent, ok := a.admit(one, now.Add(attemptsTime)); !ok || silent != 2000-attemptsKept {
		t.Errorf("after an hour: recorded %v, %d were not before", ok, silent)
	}
}
