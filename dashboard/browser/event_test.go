//go:build !race

package browser_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestEvent(t *testing.T) {
	s := newSite(t, "spec.json")
	positions := s.raise(uid("a"), "7", "8")
	var notes struct {
		Events []struct {
			StreamID string `json:"stream_id"`
		}
	}
	if err := json.Unmarshal(s.ops("/aggregates/note/"+uid("a")+"/events").body, &notes); err != nil ||
		len(notes.Events) != 2 {
		t.Fatal(err, notes)
	}
	b := s.open(t, page("events/"+positions[0]))
	b.settled("counter.was_raised " + positions[0])
	b.see("region", "Data").shows(`by\W+7\b`)
	b.see("region", "Metadata").shows(user)
	b.see("region", "Metadata").hides("Happened")
	b.see("region", "Why this happened").shows("this event")

	// To its consequence, and back to its cause.
	b.see("region", "Causes").see("link", regexp.MustCompile(`note\.was_written`)).click()
	b.settled("note.was_written " + notes.Events[0].StreamID)
	b.see("region", "Why this happened").see("link", "was_raised")
	b.see("region", "Causes").see("link", regexp.MustCompile(`counter\.was_raised`)).click()
	b.settled("counter.was_raised " + positions[0])

	// To its neighbours.
	b.press("]")
	b.settled("counter.was_raised " + positions[1])
	b.press("[")
	b.settled("counter.was_raised " + positions[0])
	b.see("link", "Next").click()
	b.settled("counter.was_raised " + positions[1])

	// To others with the same actor, and to its aggregate as it was then.
	b.see("region", "Metadata").see("link", user).click()
	b.settled("Events")
	b.see("table", "Events").shows("was_raised")
	b.load(page("events/" + positions[0]))
	b.settled("counter.was_raised " + positions[0])
	b.see("link", "State then").click()
	b.settled("counter/" + uid("a"))
	b.see("region", "State").shows(`total\W+7\b`)
	b.load(page("events/" + positions[0]))
	b.settled("counter.was_raised " + positions[0])
	b.see("link", "counter/"+uid("a")).click()
	b.settled("counter/" + uid("a"))
}

// TestEventOfASchedule holds that what was given up is among the consequences, with its error.
func TestEventOfASchedule(t *testing.T) {
	s := newSite(t, "spec.json")
	doomed(s, 1)
	var list struct {
		Events []struct {
			StreamID string `json:"stream_id"`
		}
	}
	s.ops("/events?before=now&type=cart").into(t, &list)
	b := s.open(t, page("events/"+list.Events[0].StreamID))
	b.settled("cart.was_doomed " + list.Events[0].StreamID)
	b.see("region", "Causes").shows("scheduled.*failed")
	b.see("region", "Why this happened").shows("this event")
}

// TestEventOfAnOlderGeneration shows an event in the newest generation of its type, and as it is stored, and verifies
// the stored bytes.
func TestEventOfAnOlderGeneration(t *testing.T) {
	s := newSite(t, "spec.json")
	position := s.write("note/"+uid("n"), "was_written", `{"text": "as it was"}`)
	spec := specText(t)
	const was = `"was_written": {"schema": {"type": "object"},`
	newer := strings.Replace(spec, was, was+` "generations": {
		"1": {"schema": {"type": "object"}, "upcast": [{"move": {"from": "text", "to": "body"}}]}
	},`, 1)
	if newer == spec {
		t.Fatal("the spec has no such event")
	}
	s.control("POST", "/api/instances/"+s.ready.Instance.ID+"/spec?environment=prod", []byte(newer))

	b := s.open(t, page("events/"+position))
	b.settled("note.was_written " + position)
	data := b.see("region", "Data")
	data.shows(`body\W+as it was`)
	data.shows("Stored in generation 1, shown in 2")
	data.see("button", "As stored").click()
	data.shows(`text\W+as it was`)
	data.hides(`body\W`)
	data.see("button", "As stored").click()
	data.shows(`body\W+as it was`)

	b.load(page("aggregates/note/" + uid("n")))
	b.settled("note/" + uid("n"))
	proof := b.see("region", "Proof")
	proof.see("button", "Verify").click()
	proof.shows("Verified.*1 event")
	proof.hides("Not verified")
}
