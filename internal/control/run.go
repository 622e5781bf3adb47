package control

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// upkeepInterval is how often a registry looks after itself.
const upkeepInterval = time.Minute

// Run does until the context ends what need not be done at once: it notes when keys were used, writes faults, forgets
// what has expired, replaces old signing keys, and removes the data of deleted instances. What was begun is finished
// before it returns. Failures are logged, and what failed is tried again.
func (r *Registry) Run(ctx context.Context, logger *slog.Logger) error {
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-r.Faults.wake:
				warn(ctx, logger, "faults could not be kept", r.Faults.save(ctx))
			case <-ctx.Done():
				return
			}
		}
	})
	writer.Go(func() { r.items.settleDoubts(ctx, logger) })
	for ended := false; !ended; {
		r.upkeep(ctx, logger)
		ended = r.items.clock.Wait(ctx, r.items.clock.Now().Add(upkeepInterval)) != nil
	}
	writer.Wait()
	ctx = context.WithoutCancel(ctx)
	warn(ctx, logger, "faults could not be kept", r.Faults.save(ctx))
	warn(ctx, logger, "last uses of keys could not be stored", r.Keys.saveUses(ctx))
	return nil
}

func (r *Registry) upkeep(ctx context.Context, logger *slog.Logger) {
	r.Secrets.forgetTokens()
	warn(ctx, logger, "faults could not be kept", r.Faults.save(ctx))
	warn(ctx, logger, "last uses of keys could not be stored", r.Keys.saveUses(ctx))
	if r.items.upstream == nil { // else the headnode does it
		warn(ctx, logger, "revoked keys could not be removed", r.Keys.forgetRevoked(ctx))
		warn(ctx, logger, "the signing key could not be replaced", r.Secrets.rotateOldKey(ctx))
	}
	warn(ctx, logger, "data of deleted instances could not be removed", r.Instances.dropLeftovers(ctx))
}

func warn(ctx context.Context, logger *slog.Logger, what string, err error) {
	if err != nil && ctx.Err() == nil {
		logger.LogAttrs(ctx, slog.LevelWarn, "upkeep of the registry failed", slog.String("what", what), slog.Any("error", err))
	}
}
