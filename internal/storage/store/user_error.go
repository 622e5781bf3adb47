package store

import (
	"errors"
	"fmt"

	"j17"
)

// UserError returns the error of a store's call in the form that users see, nil for nil.
func UserError(err error) error {
	var corruption *CorruptionError
	var told *j17.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &told):
		return err
	case errors.As(err, &corruption):
		return j17.Errorf(j17.CodeCorruption, "Stored data is damaged and is not served. "+
			"Restore it from a backup with 'j17 backup restore'; 'j17 scrub status' says what is damaged.").Because(err)
	case errors.Is(err, ErrFull):
		return j17.Errorf(j17.CodeStorageFull, "The server is short of disk space: nothing was written. Reads go on; writes resume by themselves when there is space.").Because(err)
	case errors.Is(err, ErrFailed) && !errors.Is(err, ErrUnknown):
		return j17.Errorf(j17.CodeUnavailable, "The server's disk has failed: nothing was written. Reads go on; writes resume when the server has been restarted on a sound disk.").Because(err)
	case errors.Is(err, ErrClock):
		return j17.Errorf(j17.CodeUnavailable, "The server's clock has jumped and is not believed: nothing was written. Reads go on; its operator has to set the clock right or confirm it.").Because(err)
	case errors.Is(err, ErrBusy):
		return j17.Errorf(j17.CodeBusy, "The server lacks %s for a moment: nothing was written. Try again in a moment.", Lacking(err)).Because(err)
	case errors.Is(err, ErrEnded):
		return j17.Errorf(j17.CodeBusy, "The read has taken longer than the server keeps what it shows. Try again, and ask for less at a time.").Because(err)
	case errors.Is(err, ErrUnknown):
		return j17.Errorf(j17.CodeOutcomeUnknown, "The write may or may not have been stored. Read the aggregate, or retry with the same idempotency key.").Because(err)
	case errors.Is(err, ErrLimit):
		return j17.Errorf(j17.CodePayloadTooLarge, "The write is too large for one commit: nothing was written. Split it into smaller ones.").Because(err)
	case errors.Is(err, ErrIndexing):
		return j17.Errorf(j17.CodeIndexNotReady, "Events cannot be found by actor or target yet: %s. Try again in a while.", indexed(err)).Because(err)
	case errors.Is(err, ErrClosed):
		return j17.Errorf(j17.CodeUnavailable, "The server is shutting down. Try again.").Because(err)
	default:
		return err
	}
}

// indexed describes how far the index of actors and targets is.
func indexed(err error) string {
	if of, ok := errors.AsType[*IndexingError](err); ok {
		return fmt.Sprintf("%d of the %d events that an older version has written are indexed", of.Done, of.Total)
	}
	return "events that an older version has written are being indexed"
}
