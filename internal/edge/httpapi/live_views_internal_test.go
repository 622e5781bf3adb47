package httpapi

import (
	"context"
	"strings"
	"testing"

	"j17"
)

// TestLiveRowsSayWhatIsTooMuch: a list that has too many rows is told from one for which too much would have to be
// looked at.
func TestLiveRowsSayWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	for want, list := range map[string]*liveList{
		"": {whole: true},
		"The list has more rows than can be followed, 1000 of 8 MiB together. Less.":                               {},
		"Too many places would have to be compared to follow what is asked for: ask for a smaller radius or area.": {early: true},
	} {
		rows := &liveRows{
			less: "Less.", of: func(context.Context) (*liveState, error) { return &liveState{list: list}, nil },
		}
		_, err := rows.read(t.Context())
		switch {
		case want == "":
			if err != nil {
				t.Errorf("a list that can be followed: %v", err)
			}
		case j17.CodeOf(err) != j17.CodeProjectionLimit || !strings.Contains(err.Error(), want):
			t.Errorf("%v, not %q", err, want)
		}
	}
}
