package engine

import (
	"context"

	"j17"
	"j17/internal/spec"
	"j17/internal/store"
	"j17/internal/value"
)

// Replay returns the state that the first length events of an aggregate fold to under a spec, which need not be the
// deployed one, with the functions of its custom code. Nothing of it is kept.
func (e *Engine) Replay(
	ctx context.Context, t store.Tenant, c *spec.Compiled, functions Functions, key j17.Key, length uint64,
) (value.Value, error) {
	typ := c.Types[key.Type]
	if typ == nil {
		return value.Value{}, j17.Errorf(j17.CodeUnknownType, "Aggregate type '%s' not found in spec", printable(key.Type))
	}
	p := newProgram(typ, functions)
	f, err := e.fold(ctx, t, p, key, p.first(), length)
	if err != nil {
		return value.Value{}, storage(err)
	}
	return f.data, nil
}
