package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"j17/internal/core/worker"
)

// upkeepInterval is the interval of a registry's upkeep.
const upkeepInterval = time.Minute

// Run does the background work until the context ends: it stores when keys were used, writes faults, resolves changes
// in doubt, follows other servers, removes what has expired, replaces old signing keys, and removes the data of deleted
// instances. Uses and faults from before the end are stored before it returns.
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
	if r.items.upstream == nil { // otherwise the headnode does it
		errs = append(
			errs,
			failed("deployments could not be put into the audit log", r.Specs.announceLate(ctx)),
			failed("revoked keys could not be removed", r.Keys.forgetRevoked(ctx)),
			failed("the signing key could not be replaced", r.Secrets.rotateOldKey(ctx)),
		)
	}
	return errors.Join(errs...)
}

// failed adds to an error what has failed.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
