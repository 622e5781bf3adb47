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
func (r *Registry) Run(ctx context.Context) error {
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-r.Faults.wake:
				r.warn(ctx, "faults could not be kept", r.Faults.save(ctx))
			case <-ctx.Done():
				return
			}
		}
	})
	writer.Go(func() { r.items.settleDoubts(ctx) })
	for ended := false; !ended; {
		r.upkeep(ctx)
		ended = r.items.clock.Wait(ctx, r.items.clock.Now().Add(upkeepInterval)) != nil
	}
	writer.Wait()
	ctx = context.WithoutCancel(ctx)
	r.warn(ctx, "faults could not be kept", r.Faults.save(ctx))
	r.warn(ctx, "last uses of keys could not be stored", r.Keys.saveUses(ctx))
	return nil
}

func (r *Registry) upkeep(ctx context.Context) {
	r.Secrets.forgetTokens()
	r.warn(ctx, "faults could not be kept", r.Faults.save(ctx))
	r.warn(ctx, "last uses of keys could not be stored", r.Keys.saveUses(ctx))
	if r.items.upstream == nil { // else the headnode does it
		r.warn(ctx, "deployments could not be put into the audit log", r.Specs.announceLate(ctx))
		r.warn(ctx, "revoked keys could not be removed", r.Keys.forgetRevoked(ctx))
		r.warn(ctx, "the signing key could not be replaced", r.Secrets.rotateOldKey(ctx))
	}
	r.warn(ctx, "data of deleted instances could not be removed", r.Instances.dropLeftovers(ctx))
}

func (r *Registry) warn(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		r.items.logger.LogAttrs(ctx, slog.LevelWarn, "upkeep of the registry failed", slog.String("what", what), slog.Any("error", err))
	}
}
