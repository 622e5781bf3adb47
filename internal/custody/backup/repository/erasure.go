package repository

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Erasure describes what was erased of a tenant: earlier backups still have it, and a restore from one of them has to
// erase it again.
type Erasure struct {
	Tenant j17.Tenant
	// Note is that in the feed.
	Note store.Note
	At   time.Time
	// Number distinguishes the files of one erasure, from 0.
	Number int
	// Events are the replacements of erased events, each with the leaf hash that is kept.
	Events []*j17.Event
}

// erasureJSON is the first line of the file; the other lines are those of a feed.
type erasureJSON struct {
	Format int        `json:"format"`
	Tenant j17.Tenant `json:"tenant"`
	At     time.Time  `json:"at"`
	Note   noteJSON   `json:"note"`
	Events int        `json:"events"`
}

func erasuresOf(t j17.Tenant) string { return erasures + "/" + string(t) }

// whichBytes is how much of the hash of its content is part of the name of a file.
const whichBytes = 16

// file is the name of an erasure's file. Other streams or events under the same note give another name, since an
// aggregate that is erased with another one may also be requested itself before anything else is written. The name
// discloses nothing about the streams without the seal's key.
func (e *Erasure) file(seal Seal) string {
	var which []byte
	for _, s := range e.Note.Streams {
		which = append(append(which, s.Key.String()...), '\n')
	}
	if n := len(e.Events); n > 0 {
		which = fmt.Appendf(which, "%s %s", e.Events[0].StreamID, e.Events[n-1].StreamID)
	}
	return fmt.Sprintf(
		"%s/%s.%d.%s", erasuresOf(e.Tenant), e.Note.Position, e.Number, nameOf(seal.names, which)[:whichBytes],
	)
}

// PutErasure notes an erasure. Noting the same one again changes nothing.
func (r *Repository) PutErasure(ctx context.Context, e Erasure, seal Seal) error {
	head := erasureJSON{
		Format: Format, Tenant: e.Tenant, At: e.At.UTC(), Note: noteJSON{At: e.Note.Position.String()},
		Events: len(e.Events),
	}
	for _, s := range e.Note.Streams {
		head.Note.Streams = append(head.Note.Streams, streamJSON{s.Key.String(), s.Number})
	}
	content, err := appendLine(nil, head)
	if err != nil {
		return err
	}
	for _, event := range e.Events {
		if content, err = appendEvent(content, event, nil); err != nil {
			return err
		}
	}

	with, err := seal.packer()
	if err != nil {
		return err
	}
	file, err := with.pack(content)
	if err != nil {
		return err
	}
	name := e.file(seal)
	if err = r.storage.Put(ctx, name, file); err == nil {
		err = r.storage.Sync(ctx)
	}
	return describe(r.storage, name, "stored", err)
}

// DropErasures removes those of a tenant whose notes are not after a position: no backup has what they erase.
func (r *Repository) DropErasures(ctx context.Context, t j17.Tenant, upTo j17.StreamID) error {
	files, err := r.erasureFiles(ctx, t)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.at.Compare(upTo) > 0 {
			continue
		}
		if err := r.storage.Delete(ctx, f.name); err != nil {
			return describe(r.storage, f.name, "deleted", err)
		}
	}
	return nil
}

// Erasures yields those of a tenant that were noted after a position, in their order.
func (r *Repository) Erasures(
	ctx context.Context, t j17.Tenant, after j17.StreamID, identities Identities,
) iter.Seq2[*Erasure, error] {
	return func(yield func(*Erasure, error) bool) {
		files, err := r.erasureFiles(ctx, t)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, f := range files {
			if f.at.Compare(after) <= 0 {
				continue
			}
			e, err := r.erasure(ctx, f, t, identities)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// erasedFile is the file of an erasure.
type erasedFile struct {
	name   string
	at     j17.StreamID
	number int
}

// erasureFiles lists the files of a tenant in the order of their notes.
func (r *Repository) erasureFiles(ctx context.Context, t j17.Tenant) (files []erasedFile, err error) {
	folder := erasuresOf(t)
	for f, err := range r.storage.List(ctx, folder) {
		if err != nil {
			return nil, describe(r.storage, folder, "listed", err)
		}
		at, rest, _ := strings.Cut(strings.TrimPrefix(f.Name, folder+"/"), ".")
		number, _, _ := strings.Cut(rest, ".")
		e := erasedFile{name: f.Name}
		if e.at, err = j17.ParseStreamID(at); err == nil {
			e.number, err = strconv.Atoi(number)
		}
		if err != nil {
			return nil, r.damaged(f.Name, errors.New("its name is not that of an erasure"))
		}
		files = append(files, e)
	}
	slices.SortFunc(files, func(a, b erasedFile) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name))
	})
	return files, nil
}

// erasure reads the file of an erasure.
func (r *Repository) erasure(ctx context.Context, f erasedFile, t j17.Tenant, identities Identities) (*Erasure, error) {
	file, err := r.storage.Get(ctx, f.name, maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errTooLarge) {
		return nil, describe(r.storage, f.name, "read", err)
	}
	var content []byte
	if err == nil {
		content, err = unpackErasure(file, identities)
		if _, ok := errors.AsType[*IdentityError](err); ok {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	e := &Erasure{Number: f.number}
	if err == nil {
		err = e.decode(content)
	}
	if err == nil && (e.Tenant != t || e.Note.Position != f.at) {
		err = errors.New("it is that of another erasure")
	}
	if err != nil {
		return nil, r.damaged(f.name, err)
	}
	return e, nil
}

// agePrefix is what every encrypted file begins with.
const agePrefix = "age-encryption.org/"

func unpackErasure(file []byte, identities Identities) ([]byte, error) {
	decoder, err := newDecoder()
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	return identities.unpack(decoder, file, bytes.HasPrefix(file, []byte(agePrefix)), 0)
}

// decode reads what PutErasure has written.
func (e *Erasure) decode(content []byte) error {
	first, rest, _ := bytes.Cut(content, []byte("\n"))
	var head erasureJSON
	if err := json.Unmarshal(first, &head); err != nil {
		return err
	}
	if head.Format > Format {
		return fmt.Errorf("it was made by a newer version of j17 (format %d, this one reads formats up to %d): use that version", head.Format, Format)
	}
	note, err := head.Note.note()
	if err != nil {
		return err
	}
	e.Tenant, e.At, e.Note = head.Tenant, head.At, *note
	err = readFeed(rest, func(entry *store.Archived) error {
		if entry.Event == nil || entry.Event.Kept == nil {
			return errors.New("there is something that was not erased")
		}
		e.Events = append(e.Events, entry.Event)
		return nil
	})
	if err == nil && len(e.Events) != head.Events {
		err = errors.New("it does not have all events")
	}
	return err
}
