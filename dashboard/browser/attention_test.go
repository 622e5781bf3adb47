//go:build !race

package browser_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
)

// doomed makes scheduled events that were given up, and returns their ids.
func doomed(s *site, n int) []string {
	s.tb.Helper()
	for i := range n {
		s.write("cart/"+uid(fmt.Sprint("doomed", i)), "was_doomed", `{}`)
	}
	for range 12 {
		s.advance("6m")
	}
	ids := givenUp(s)
	if len(ids) != n {
		s.tb.Fatalf("%d of %d scheduled events were given up", len(ids), n)
	}
	return ids
}

// givenUp returns the ids of the scheduled events that were given up.
func givenUp(s *site) []string {
	s.tb.Helper()
	var list struct {
		Scheduled []struct {
			ID string `json:"scheduled_id"`
		}
	}
	s.ops("/scheduled/dead_letters?limit=1000").into(s.tb, &list)
	var ids []string
	for _, one := range list.Scheduled {
		ids = append(ids, one.ID)
	}
	return ids
}

func TestAttention(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("attention"))
	b.settled("Needs attention")
	b.shows("Nothing waits for a person")

	ids := doomed(s, 3)
	b.load(page("attention"))
	b.settled("Needs attention")
	table := b.see("table", "Needs attention")
	table.shows("Scheduled events")
	table.see("button", "Retry all 3")

	// Its details.
	table.see("link", ids[0]).click()
	b.see("region", "Detail").shows("no number")
	b.see("region", "Detail").see("button", "Close").click()
	b.gone("region", "Detail")

	// One of them.
	table.see("button", "Retry "+ids[1]).click()
	b.gone("button", "Retry "+ids[1])
	b.see("button", "Retry all 2")
	if left := givenUp(s); len(left) != 2 || slices.Contains(left, ids[1]) {
		t.Errorf("%v are left of %v", left, ids)
	}

	// All of them, once the dialog has said how many they are.
	b.see("button", "Retry all 2").click()
	dialog := b.see("dialog", "Retry all of this cause?")
	dialog.shows("2 scheduled events")
	if left := givenUp(s); len(left) != 2 {
		t.Errorf("%v are left before anybody has confirmed", left)
	}
	dialog.see("button", "Cancel").click()
	b.gone("dialog", nil)
	b.see("button", "Retry all 2").click()
	b.see("dialog", "Retry all of this cause?").see("button", regexp.MustCompile(`^Retry 2$`)).click()
	b.gone("dialog", nil)
	b.until("none to be left", func() (bool, error) { return len(givenUp(s)) == 0, nil })
	b.shows("Nothing waits for a person")
}

// TestAttentionOfAuditors holds that who may only read gets no buttons that would be refused.
func TestAttentionOfAuditors(t *testing.T) {
	s := newSite(t, "spec.json")
	doomed(s, 1)
	b := s.openAs(t, s.operator("instance_admin"), page("attention"))
	b.settled("Needs attention")
	b.see("button", "Retry all 1")
	b = s.openAs(t, s.operator("auditor"), page("attention"))
	b.heading("Not allowed")
}
