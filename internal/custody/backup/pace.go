package backup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"j17/internal/base/clock"
)

// pace lets a backup run fast while no events are written, and slowly while some are; it also checks that there is
// enough free space.
type pace struct {
	ctx  context.Context
	real clock.Clock // the real clock, whatever the server's clock shows
	// committed counts events, free returns the free space; nil if the backup takes no space on this machine.
	committed func() uint64
	free      func() error

	// mu is held while a reader pauses, so that the other readers pause too.
	mu        sync.Mutex
	began     time.Time
	seen      uint64
	size, all int
	// busy is when events were last seen to be written.
	busy time.Time
}

const (
	// slice is how many bytes are read between two checks, entry what is added to the size of each event and item.
	slice = 512 << 10
	entry = 128
	// restShare is how many times as long as it works a backup rests while events are written, longestRest at most.
	restShare   = 8
	longestRest = time.Second
	// quietAfter is how long no event may be written until the server counts as idle: a busy server writes events in
	// groups, and several slices may pass between two of them.
	quietAfter = 250 * time.Millisecond
	// roomSlice is how many bytes are read between two checks of the free space.
	roomSlice = 32 << 20
)

// newPace returns the pace of a backup to a place; an error if there is too little space to begin with.
func (s *Service) newPace(ctx context.Context, at place) (*pace, error) {
	p := &pace{ctx: ctx, real: clock.System{}, committed: s.Committed}
	if at.S3 == nil {
		p.free = func() error { return s.room(at.Folder) }
		if err := p.free(); err != nil {
			return nil, err
		}
	}
	p.began, p.seen = p.real.Now(), s.Committed()
	return p, nil
}

// step is called with the size of what was read; it may be called concurrently.
func (p *pace) step(size int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size += size + entry; p.size < slice {
		return nil
	}
	p.all += p.size
	p.size = 0
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.all >= roomSlice && p.free != nil {
		p.all = 0
		if err := p.free(); err != nil {
			return err
		}
	}

	// Events are being written: rest for the remaining time.
	now, seen := p.real.Now(), p.committed()
	if seen != p.seen {
		p.busy = now
	}
	if now.Sub(p.busy) < quietAfter {
		rest := min(restShare*now.Sub(p.began), longestRest)
		if err := p.real.Wait(p.ctx, now.Add(rest)); err != nil {
			return err
		}
		now = p.real.Now()
	}
	p.began, p.seen = now, p.committed()
	return nil
}

// The free space that a backup leaves in its folder, in bytes, since the data folder may be on the same disk: a tenth
// of the disk, at most twice what the store needs for itself.
const (
	mostRoom  = 640 << 20
	leastRoom = 160 << 20
	roomShare = 10
)

// room checks that a folder has space for more.
func (s *Service) room(folder string) error {
	free, total, err := s.Free(folder)
	if err != nil {
		return fmt.Errorf("the room in the folder for backups is not known: %w", err)
	}
	if need := min(mostRoom, max(leastRoom, total/roomShare)); free < need {
		return fmt.Errorf("the disk with the folder for backups has only %d MiB left, and %d MiB stay free for the server: remove old backups, or move the folder to another disk (--backups)", free>>20, need>>20)
	}
	return nil
}
