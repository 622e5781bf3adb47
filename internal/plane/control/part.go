package control

import (
	"context"

	"j17"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns the registry as a part of the program.
func (r *Registry) Part() part.Part {
	return part.Part{
		Name: "control",
		Spaces: append(
			part.Spaces(
				instanceSpace, nameSpace, droppedSpace, operatorSpace, emailSpace, keySpace, keyUseSpace, revokedSpace,
				sessionSpace, loginCodeSpace,
				failedLoginSpace, nodeSpace, positionSpace, unsentSpace, faultSpace, faultAgeSpace, specHeadSpace,
				unannouncedSpace, formerHeads, formerRecords, formerInstanceRecords,
			),
			part.Space{Declared: store.Declared{Space: specSpace}, Sealed: mayHaveHeaders},
			part.Space{Declared: store.Declared{Space: formerSpecs}, Sealed: mayHaveHeaders},
			// The keys that sign tokens, and the secret of the nodes.
			part.Space{Declared: store.Declared{Space: SecretSpace}, Secret: true},
		),
		Erase: part.Erase{Streams: r.eraseFaults},
		Work:  part.Work{Run: r.Run},
	}
}

// eraseFaults removes the faults that name streams.
func (r *Registry) eraseFaults(ctx context.Context, t j17.Tenant, e part.Erased) error {
	return r.Faults.Erase(ctx, t, e)
}
