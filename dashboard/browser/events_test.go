//go:build !race

package browser_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestEventsLive(t *testing.T) {
	s := newSite(t, "spec.json")
	s.raise(uid("a"), "1")
	b := s.open(t, page("events"))
	b.settled("Events")
	b.see("status", "Stream").shows("Live")
	table := b.see("table", "Events")
	table.shows(uid("a"))

	s.raise(uid("b"), "2")
	table.shows(uid("b"))
	text, err := table.text()
	if err != nil {
		t.Fatal(err)
	}
	if newest := strings.Index(text, uid("b")); newest < 0 || newest > strings.Index(text, uid("a")) {
		t.Errorf("not newest first: %s", text)
	}

	// What comes while it pauses is counted.
	b.see("button", "Pause").click()
	b.see("button", "Resume")
	for i := range 3 {
		s.write("note/"+uid("c"), "was_changed", fmt.Sprintf(`{"n": %d}`, i))
		b.see("button", fmt.Sprintf("%d new", i+1))
	}
	if text, err := table.now(); err != nil || strings.Contains(text, uid("c")) {
		t.Errorf("a new row while it pauses (%v): %s", err, text)
	}
	b.see("button", "3 new").click()
	table.shows(uid("c"))
	b.see("button", "Pause").click()
	b.see("button", "Resume").click()
	b.see("button", "Pause")
}

func TestEventFilters(t *testing.T) {
	s := newSite(t, "spec.json")
	positions := s.raise(uid("a"), "1", "2")
	s.write("user/"+uid("u"), "was_created", `{"name": "N"}`)
	var read struct {
		Event struct {
			Metadata struct {
				Correlation string `json:"correlation_id"`
			}
		}
	}
	s.ops("/events/"+positions[1]).into(t, &read)

	b := s.open(t, page("events"))
	b.settled("Events")
	table := b.see("table", "Events")
	table.shows("was_created.*was_written.*was_raised")
	b.see("combobox", "Type").choose("note")
	b.arrive(page("events?type=note"))
	table.hides("was_raised|was_created")
	table.shows("was_written")
	b.see("combobox", "Event type").choose("was_changed")
	b.arrive(page("events?type=note&event=was_changed"))
	b.shows("No event passes these filters")
	b.see("button", "Any event type").click()
	b.see("button", "Any type").click()
	b.arrive(page("events"))
	table.shows("was_created")

	for name, value := range map[string]string{
		"Actor": "user:" + user, "Correlation": read.Event.Metadata.Correlation,
	} {
		b.see("textbox", name).fill(value)
		b.press("Enter")
		b.arrive(page("events?" + strings.ToLower(name) + "=" + value))
		table.shows("was_raised")
		b.see("button", "Any "+strings.ToLower(name)).click()
		b.arrive(page("events"))
	}

	// The address alone is enough.
	b.load(page("events?correlation=" + read.Event.Metadata.Correlation))
	b.settled("Events")
	table.shows("was_written")
	table.hides("was_created")
	b.load(page("events?actor=user:" + uid("nobody")))
	b.shows("No event passes these filters")

	// A place.
	b.load(page("events"))
	b.settled("Events")
	b.see("textbox", "Go to").fill("nowhere")
	b.press("Enter")
	b.see("alert", nil).shows("position")
	b.see("textbox", "Go to").fill(positions[0])
	b.press("Enter")
	b.until("the list before that", func() (bool, error) {
		at, err := eval[string](b, "location.search")
		return strings.HasPrefix(at, "?before="), err
	})
	table.hides("was_created")
	table.shows("was_raised")
}

// TestEventPeek holds that a click shows an event beside the list, and that the keyboard reaches its page.
func TestEventPeek(t *testing.T) {
	s := newSite(t, "spec.json")
	position := s.raise(uid("a"), "7")[0]
	b := s.open(t, page("events?type=counter"))
	b.settled("Events")
	link := b.see("table", "Events").see("link", "was_raised")
	link.click()
	b.shows("raised by 7")
	b.arrive(page("events?type=counter"))
	b.press("Escape")
	link.do("function () { this.focus() }")
	b.press("Enter")
	b.settled("counter.was_raised " + position)
}

// TestEventsTooManyToRead has more events come than anybody can read: the list says that it shows some of them, and
// shows all once they are over.
func TestEventsTooManyToRead(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("events"))
	b.settled("Events")
	b.see("status", "Stream").shows("Live")
	last := 0
	b.until("the list to say that it is sampled", func() (bool, error) {
		last++
		var events []string
		for i := range 100 {
			events = append(events, fmt.Sprintf(`{"type": "was_changed", "data": {"n": "%d of %d"}}`, i, last))
		}
		s.batch("note/"+uid("many"), events)
		return strings.Contains(b.text(), "Sampled: about"), nil
	})
	b.until("the list to be whole again", func() (bool, error) {
		text := b.text()
		return !strings.Contains(text, "Sampled: about") && strings.Contains(text, fmt.Sprintf("99 of %d", last)) &&
			strings.Contains(text, fmt.Sprintf("90 of %d", last)), nil
	})
}
