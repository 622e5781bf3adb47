package envlog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"j17"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// Status is the status of a key.
type Status string

// The statuses of keys.
const (
	Active  Status = "active"
	Retired Status = "retired"
)

// Key is a public key of a log. It is kept, so that its signatures can always be verified.
type Key struct {
	// Name is the origin of the log.
	Name string `json:"name"`
	// VKey is the verifier key, in the format of C2SP's signed notes.
	VKey      string    `json:"vkey"`
	CreatedAt time.Time `json:"created_at"`
	// RetiredAt is when another key replaced it; the zero time while it is active.
	RetiredAt time.Time `json:"retired_at,omitzero"`
}

// Status returns whether the key is active.
func (k Key) Status() Status {
	if k.RetiredAt.IsZero() {
		return Active
	}
	return Retired
}

const (
	// overlap is how long a replaced key goes on signing beside its successor.
	overlap = 24 * time.Hour
	// mostSigners is how many keys sign a note at most, mostKeys how many keys a log may have had.
	mostSigners = 8
	mostKeys    = 1000
)

// ErrKeys is the error of a rotation after too many others.
var ErrKeys = errors.New("envlog: the log has had too many keys")

// keyRing holds the stored keys of a log, the active one first.
type keyRing struct {
	Keys []Key `json:"keys"`

	rev uint64
}

// Keys returns the keys of a log, the active one first. A log without keys gets one.
func (s *Service) Keys(ctx context.Context, t j17.Tenant) ([]Key, error) {
	ring, _, err := s.signers(ctx, t)
	return ring.Keys, err
}

// Rotate gives a log a new key, whose public half it returns. The previous one signs for another day.
func (s *Service) Rotate(ctx context.Context, t j17.Tenant) (Key, error) {
	for {
		ring, _, err := s.signers(ctx, t)
		if err != nil {
			return Key{}, err
		}
		key, err := s.replace(ctx, t, ring)
		if _, lost := errors.AsType[*store.SideConflict](err); !lost {
			return key, err
		}
	}
}

// Sign signs a text, which ends with a line feed, with the keys of a log and returns the note.
func (s *Service) Sign(ctx context.Context, t j17.Tenant, text string) (string, error) {
	_, signers, err := s.signers(ctx, t)
	if err != nil {
		return "", err
	}
	signed, err := note.Sign(&note.Note{Text: text}, signers...)
	return string(signed), err
}

// Checkpoint returns the signed head of a log. It covers every event that was acknowledged before the call.
func (s *Service) Checkpoint(ctx context.Context, t j17.Tenant) (signed string, err error) {
	head, err := s.Head(ctx, t)
	if err != nil {
		return "", err
	}
	signed, _, err = s.signHead(ctx, t, head)
	return signed, err
}

// CheckpointAt returns the signed head that a log had at a position, and the verifier key of its active key.
func (s *Service) CheckpointAt(ctx context.Context, t j17.Tenant, upTo j17.StreamID) (signed, vkey string, err error) {
	head, err := s.HeadAt(ctx, t, upTo)
	if err != nil {
		return "", "", err
	}
	return s.signHead(ctx, t, head)
}

func (s *Service) signHead(ctx context.Context, t j17.Tenant, head Head) (signed, vkey string, err error) {
	ring, signers, err := s.signers(ctx, t)
	if err != nil {
		return "", "", err
	}
	text := proof.TreeHead{Origin: ring.Keys[0].Name, Size: head.Size, Root: head.Root}.Text()
	raw, err := note.Sign(&note.Note{Text: text}, signers...)
	return string(raw), ring.Keys[0].VKey, err
}

// signers returns the keys of a log and those that sign now, the active one first. If the private half of the active
// key is missing, as after a restore, or there is no key, a new one is made.
func (s *Service) signers(ctx context.Context, t j17.Tenant) (ring keyRing, signers []note.Signer, err error) {
	for {
		if ring, err = s.ring(ctx, t); err != nil {
			return ring, nil, err
		}
		if signers, err = s.signersOf(ctx, t, ring); err != nil || signers != nil {
			return ring, signers, err
		}
		// If another process was first, its stored key is used.
		_, err = s.replace(ctx, t, ring)
		if _, lost := errors.AsType[*store.SideConflict](err); err != nil && !lost {
			return ring, nil, err
		}
	}
}

// ring reads the keys of a log.
func (s *Service) ring(ctx context.Context, t j17.Tenant) (ring keyRing, err error) {
	item, err := s.Store.Get(ctx, t, keySpace, headItem)
	if errors.Is(err, store.ErrNotFound) {
		return ring, nil
	}
	if err != nil {
		return ring, err
	}
	body, err := opened(headItem, item.Value)
	if err == nil {
		err = json.Unmarshal(body, &ring)
	}
	if err != nil {
		return ring, damage(t, "item %s of %s: %w", headItem, keySpace, err)
	}
	ring.rev = item.Rev
	return ring, nil
}

// signersOf returns the current signers, nil if the active key cannot sign.
func (s *Service) signersOf(ctx context.Context, t j17.Tenant, ring keyRing) (signers []note.Signer, err error) {
	now := s.Clock.Now()
	for i := range ring.Keys[:min(len(ring.Keys), mostSigners)] {
		key := &ring.Keys[i]
		if i > 0 && !now.Before(key.RetiredAt.Add(overlap)) {
			break
		}
		name := privateKey(key.VKey)
		item, err := s.Store.Get(ctx, t, KeySpace, name)
		if errors.Is(err, store.ErrNotFound) {
			if i == 0 {
				return nil, nil
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		body, err := opened(name, item.Value)
		if err != nil {
			return nil, damage(t, "item %s of %s: %w", name, KeySpace, err)
		}
		signer, err := note.NewSigner(string(body))
		if err != nil {
			return nil, damage(t, "item %s of %s: %w", name, KeySpace, err)
		}
		signers = append(signers, signer)
	}
	return signers, nil
}

// privateKey is the storage key of a private half: the hash that is in its signatures.
func privateKey(vkey string) string {
	_, hash, _ := strings.Cut(vkey, "+")
	hash, _, _ = strings.Cut(hash, "+")
	return hash
}

// replace makes a new key the active one.
func (s *Service) replace(ctx context.Context, t j17.Tenant, ring keyRing) (Key, error) {
	if len(ring.Keys) >= mostKeys {
		return Key{}, ErrKeys
	}

	// The log keeps its name.
	var name string
	var err error
	if len(ring.Keys) > 0 {
		name = ring.Keys[0].Name
	} else if name, err = s.Origin(t); err != nil {
		return Key{}, err
	}
	private, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return Key{}, err
	}
	now := s.Clock.Now().UTC().Truncate(time.Second)
	key := Key{Name: name, VKey: public, CreatedAt: now}
	if _, err := note.NewVerifier(public); err != nil {
		return Key{}, fmt.Errorf("envlog: %q cannot be the name of a key: %w", name, err)
	}

	// The old key goes on signing for a while. Its private half expires then.
	var sides []store.Side
	keys := slices.Concat([]Key{key}, ring.Keys)
	if len(ring.Keys) > 0 && ring.Keys[0].Status() == Active {
		keys[1].RetiredAt = now
		old := privateKey(keys[1].VKey)
		item, err := s.Store.Get(ctx, t, KeySpace, old)
		switch {
		case err == nil:
			sides = append(sides, store.Side{
				Op: store.Put, Space: KeySpace, Key: old, Value: item.Value, Expires: now.Add(overlap),
				Cond: store.IfRev, Rev: item.Rev,
			})
		case !errors.Is(err, store.ErrNotFound):
			return Key{}, err
		}
	}

	raw, err := json.Marshal(keyRing{Keys: keys})
	if err != nil {
		return Key{}, err
	}
	list := store.Side{
		Op: store.Put, Space: keySpace, Key: headItem, Value: sealed(headItem, append([]byte{formatVersion}, raw...)),
		Cond: store.IfAbsent,
	}
	if ring.rev != 0 {
		list.Cond, list.Rev = store.IfRev, ring.rev
	}
	hash := privateKey(public)
	sides = append(sides, list, store.Side{
		Op: store.Put, Space: KeySpace, Key: hash, Value: sealed(hash, append([]byte{formatVersion}, private...)),
		Cond: store.IfAbsent,
	})
	return key, s.Store.Write(ctx, t, sides)
}
