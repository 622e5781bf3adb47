package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"j17/internal/core/worker"
)

// upkeepInterval is how often a registry looks after itself.
const upkeepInterval = time.Minute

// Run does until the context ends what need not be done at once: it notes when keys were used, writes faults, finds out
// what became of changes in doubt and what other servers have changed, forgets what has expired, replaces old signing
// keys, and removes the data of deleted instances. What was counted and reported until the end is stored before it
// returns.
func (r *Registry) Run(ctx context.Context) error {
	r.items.worker.Every(
		ctx,
		worker.Loop{
			Name: "registry_faults", Every: upkeepInterval, Wake: r.Faults.wake, Final: true,
			Do: func(ctx context.Context) error {
				return failed("faults could not be kept", r.Faults.save(ctx))
			},
		},
		worker.Loop{Name: "registry_key_uses", Every: upkeepInterval, Final: true, Do: func(ctx context.Context) error {
			return failed("last uses of keys could not be stored", r.Keys.saveUses(ctx))
		}},
		worker.Loop{
			Name: "registry_doubts", Wake: r.items.doubted, Retry: worker.Backoff{First: settleInterval, Factor: 1},
			Do: r.items.settleDoubt,
		},
		worker.Loop{Name: "registry_log", Retry: worker.Backoff{First: settleInterval, Factor: 1}, Do: r.items.follow},
		worker.Loop{Name: "registry_upkeep", Every: upkeepInterval, Do: r.upkeep},
	)
	return nil
}

func (r *Registry) upkeep(ctx context.Context) error {
	r.Secrets.forgetTokens()
	errs := []error{failed("data of deleted instances could not be removed", r.Instances.dropLeftovers(ctx))}
	if r.items.upstream == nil { // else the headnode does it
		errs = append(
			errs,
			failed("deployments could not be put into the audit log", r.Specs.announceLate(ctx)),
			failed("revoked keys could not be removed", r.Keys.forgetRevoked(ctx)),
			failed("the signing key could not be replaced", r.Secrets.rotateOldKey(ctx)),
		)
	}
	return errors.Join(errs...)
}

// failed says what an error is about.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
