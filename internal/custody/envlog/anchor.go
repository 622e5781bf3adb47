package envlog

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

const (
	// anchorPause is the pause between two rounds in which heads are anchored.
	anchorPause = time.Hour
	// anchoredAtOnce is how many environments are anchored with one call.
	anchoredAtOnce = 100
)

// anchored is the line about an anchored head.
type anchored struct {
	At          time.Time       `json:"at"`
	Instance    string          `json:"instance"`
	Environment j17.Environment `json:"environment"`
	Checkpoint  string          `json:"checkpoint"`
}

// anchors is the progress of anchoring.
type anchors struct {
	// seen is the number of the last change that was handled, sizes what was last anchored for each environment since
	// the start.
	seen  uint64
	sizes map[j17.Tenant]uint64
}

// anchorLoop anchors the heads of environments that have grown, each hour and when the server stops.
func (s *Service) anchorLoop() worker.Loop {
	a := &anchors{sizes: map[j17.Tenant]uint64{}}
	return worker.Loop{
		Name: "log_anchors", Every: anchorPause, Final: true,
		Do: func(ctx context.Context) error { return s.anchorAll(ctx, a) },
	}
}

// anchorAll anchors the heads of all environments that have grown since they were last anchored. One that cannot be
// read holds up no other: it is tried again the next time, with those after it.
func (s *Service) anchorAll(ctx context.Context, a *anchors) error {
	var failed error
	for at := a.seen; ; {
		changed, err := s.Store.Changed(ctx, at, anchoredAtOnce)
		if err != nil || len(changed) == 0 {
			return errors.Join(failed, err)
		}
		unread, err := s.anchorSome(ctx, a, changed)
		failed = errors.Join(failed, unread)
		if err != nil || ctx.Err() != nil {
			return errors.Join(failed, err)
		}
		for _, c := range changed {
			at = max(at, c.Number)
		}
		if failed == nil {
			a.seen = at
		}
	}
}

// anchorSome anchors the heads of some environments with one call. failed is about those that could not be read, err
// about all of them.
func (s *Service) anchorSome(ctx context.Context, a *anchors, changed []store.Change) (failed, err error) {
	var lines []byte
	sizes := map[j17.Tenant]uint64{}
	for _, c := range changed {
		if c.Tenant == j17.System {
			continue
		}
		size, line, err := s.anchorLine(ctx, a, c.Tenant)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if line != nil {
			lines, sizes[c.Tenant] = append(lines, line...), size
		}
	}
	if len(lines) == 0 {
		return failed, nil
	}
	if err := s.Anchor(ctx, lines); err != nil {
		return failed, err
	}

	// Stored, so that they are not anchored again after a restart.
	for t, size := range sizes {
		a.sizes[t] = size
		side := store.Side{Op: store.Put, Space: anchorSpace, Key: headItem, Value: strconv.AppendUint(nil, size, 10)}
		failed = errors.Join(failed, s.Store.Write(ctx, t, []store.Side{side}))
	}
	return failed, nil
}

// anchorLine returns the line about the head of an environment, nil if it has not grown.
func (s *Service) anchorLine(ctx context.Context, a *anchors, t j17.Tenant) (size uint64, line []byte, err error) {
	before, known := a.sizes[t]
	if !known {
		item, err := s.Store.Get(ctx, t, anchorSpace, headItem)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, nil, err
		}
		before, _ = strconv.ParseUint(string(item.Value), 10, 64) // 0 if it is missing
		a.sizes[t] = before
	}
	head, err := s.Head(ctx, t)
	if err != nil || head.Size == before {
		return 0, nil, err
	}
	signed, _, err := s.signHead(ctx, t, head)
	if err != nil {
		return 0, nil, err
	}
	instance, env, _ := strings.Cut(string(t), "/")
	line, err = json.Marshal(anchored{
		s.Clock.Now().UTC().Truncate(time.Second), instance, j17.Environment(env), signed,
	})
	return head.Size, append(line, '\n'), err
}
