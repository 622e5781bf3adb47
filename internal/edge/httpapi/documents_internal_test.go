package httpapi

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// TestADocumentIsMadeOnce asks for one many times while it is being made, and for another one meanwhile.
func TestADocumentIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d documents
		made, goOn := 0, make(chan struct{})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				doc, err := d.of(
					t.Context(), "spec", func() ([]byte, error) { made++; <-goOn; return []byte("{}"), nil },
				)
				if err != nil || string(doc.body) != "{}" || doc.tag == "" {
					t.Errorf("%v %v", doc, err)
				}
			})
		}
		synctest.Wait()

		if doc, err := d.of(t.Context(), "other", func() ([]byte, error) { return []byte("[]"), nil }); err != nil ||
			string(doc.body) != "[]" {
			t.Errorf("another one: %v %v", doc, err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := d.of(
			gone, "spec", func() ([]byte, error) { return nil, errors.New("made by one who has left") },
		); !errors.Is(err, context.Canceled) {
			t.Errorf("one who has left: %v", err)
		}

		close(goOn)
		all.Wait()
		if made != 1 {
			t.Errorf("it was made %d times", made)
		}
	})
}

// TestADocumentThatFailedIsTriedAgain lets those who wait go on, one after the other.
func TestADocumentThatFailedIsTriedAgain(t *testing.T) {
	var d documents
	wrong := errors.New("wrong")
	if _, err := d.of(t.Context(), "spec", func() ([]byte, error) { return nil, wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = d.of(t.Context(), "spec", func() ([]byte, error) { panic("wrong") })
	}()
	if doc, err := d.of(t.Context(), "spec", func() ([]byte, error) { return []byte("{}"), nil }); err != nil ||
		string(doc.body) != "{}" {
		t.Errorf("%v %v", doc, err)
	}
}
