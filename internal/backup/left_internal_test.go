package backup

import "testing"

// TestWhatIsMadeAgainIsNotCleared: a backup of which something may be left from its last turn is being made again. Whoever removes what others have
// left keeps off it: with the mark that it is being written, what is stored of it would go.
func TestWhatIsMadeAgainIsNotCleared(t *testing.T) {
	t.Parallel()
	b := &Backup{ID: "bak_1", Status: Running, Left: true}
	if err := (&Service{}).removeAll(t.Context(), nil, []*Backup{b}); err != nil || !b.Left { // a service without a store removes nothing
		t.Errorf("%+v, %v", b, err)
	}
}
