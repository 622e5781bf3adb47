//go:build !race

package command_test

import (
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
)

// TestEventsThatAreNoObjects has lists of events with something else in them: it is not the body that is at fault.
func TestEventsThatAreNoObjects(t *testing.T) {
	for _, event := range []string{`null`, `1`, `"e"`, `["e"]`} {
		events := `[{"type":"e"},` + event + `]`
		body, err := value.ParseString(`{"events":` + events + `,` + meta + `}`)
		if err != nil {
			t.Fatal(err)
		}
		batch := command.Read("", body)
		several := transaction(t, `{"key":"a:b","events":`+events+`}`)
		for c, path := range map[*command.Command]string{&batch: "", &several: "writes[0].events[1]"} {
			e, isOurs := c.Fault().(*j17.Error) //nolint:errorlint // made by the reader
			if !isOurs {
				t.Errorf("%s: %v", event, c.Fault())
				continue
			}
			if e.Code != j17.CodeInvalidField || e.Path != path ||
				!strings.HasPrefix(e.Message, "An event must be a JSON object") {
				t.Errorf("%s: %+v", event, c.Fault())
			}
			if c == &batch && (e.EventIndex == nil || *e.EventIndex != 1) {
				t.Errorf("%s: %+v", event, e)
			}
		}
	}
}
