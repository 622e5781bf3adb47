package backup

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/testopen"
)

// TestWhatIsMadeAgainIsNotCleared: a backup of which something may be left from its last turn is being made again.
// Whoever removes what others have left keeps off it: with the mark that it is being written, what is stored of it
// would go.
func TestWhatIsMadeAgainIsNotCleared(t *testing.T) {
	t.Parallel()
	b := &Backup{ID: "bak_1", Status: Running, Left: true}
	if err := (&Service{}).removeAll(t.Context(), nil, []*Backup{b}); err != nil || !b.Left {
		// a service without a store removes nothing
		t.Errorf("%+v, %v", b, err)
	}
}

// TestWhatMayBeThereIsNotForgotten: a backup that may be there from its last turn has its next one, and backups go
// elsewhere by now. It fails, and its row names the place where something of it may be, so that this is removed.
func TestWhatMayBeThereIsNotForgotten(t *testing.T) {
	t.Parallel()
	now := clock.NewManual(time.Date(2027, 1, 1, 10, 0, 0, 0, time.UTC))
	st := testopen.Open(t, now)
	s := &Service{
		Options: Options{Store: st, Clock: now, Folder: "new", Logger: slog.New(slog.DiscardHandler)}, rows: rows{st},
	}
	s.settings = &settingsStore{store: st}
	s.places = &places{settings: s.settings, clock: now, folder: "new"}
	s.collector = newCollector(s.places)
	of := j17.TenantOf("ins_1", j17.Prod)
	j := &job{row: &Backup{ID: "bak_1", Status: Running, Scope: of, Left: true, Place: place{Folder: "old"}, key: "1"}}
	err := s.make(t.Context(), j)
	if !errors.Is(err, errMoved) {
		t.Fatal(err)
	}
	s.end(t.Context(), j, err)
	var rows []*Backup
	if err := s.rows.each(t.Context(), of, func(b *Backup) bool { rows = append(rows, b); return true }); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || rows[0].Status != Failed || !rows[0].Left || rows[0].Place.Folder != "old" {
		t.Errorf("%+v", rows)
	}
}
